"""Settings of the stage medground_queries."""

from typing import Literal

from cxr.base.settings import Section, Share, key
from cxr.medground.asking.settings import GeneratorSettings

Family = Literal["class", "size", "shape", "position", "zone", "ordinal", "relation", "number", "appearance"]


class QueriesSettings(Section):
    """Referring queries."""

    engine: Literal["rules", "vllm", "table"] = key(
        "rules",
        "rules: a grammar that writes decidable queries; vllm: a language model that sees the image; table: texts of "
        "your own.",
    )
    selection: Literal["ours", "model"] = key(
        "ours",
        "ours: the language model words decidable targets that were sampled; model: it selects the targets "
        "(paper; engine vllm).",
    )
    llm: GeneratorSettings = key(GeneratorSettings, "The language model of the engine vllm.")
    table: str = key(
        "",
        "Texts of the engine table: JSON Lines with image_id, query, and regions or boxes (grid of 1000); or a "
        "folder with a file {image_id}.txt of `Question:` and `Answer:` lines for each image.",
    )
    per_image: int = key(
        3, "Number of queries per image; an image with more than five candidates gets twice as many.", ge=1, le=100
    )
    fragile: Share = key(
        0.25,
        "Largest fraction of an image's queries that may become undecidable when outlines shift by "
        "`medground.regions.outline_px`; queries whose answer changes are never used.",
    )
    families: list[Family] = key(
        lambda: ["class", "size", "shape", "position", "zone", "ordinal", "relation", "number", "appearance"],
        "Families of attributes that queries use.",
        min_length=1,
    )
