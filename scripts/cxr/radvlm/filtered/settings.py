"""Settings of RadVLM's single-image text."""

from typing import Literal

from cxr.base.settings import Section, key


class FilteredTexts(Section):
    """Reports and phrases without statements that need another image."""

    engine: Literal["rules", "vllm", "both", "none"] = key(
        "rules",
        "rules: patterns, no download; vllm: a language model, checked by the rules; both: vllm, with a table of "
        "its agreement with the rules; none: unchanged texts, for an ablation.",
    )
    phrases: bool = key(True, "Whether phrases with boxes are filtered too; false: as in the paper.")
    resolved: Literal["drop", "state_absence"] = key(
        "drop", "Treatment of a resolved finding. drop: it is removed; state_absence: it is denied."
    )
