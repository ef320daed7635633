"""The engine ``none`` changes no sentence. Use it for runs that are tuned on unedited reports."""

from collections.abc import Mapping, Sequence

from cxr.radvlm.filtered.engine import KEPT, Engine, FilteredText, FilterOptions, Sentence


def load(_options: FilterOptions, _execution: Mapping) -> Engine:
    """Return the engine ``none``."""

    def unchanged(sections: Sequence[Sequence[str]]) -> list[FilteredText]:
        return [FilteredText(tuple(Sentence(text, KEPT) for text in sentences)) for sentences in sections]

    return Engine(unchanged, "none")
