"""The engine none: keeps every sentence, for runs that are tuned on unfiltered reports."""

from collections.abc import Mapping, Sequence

from cxr.radvlm.filtered.engine import KEPT, Engine, FilteredText, FilterOptions, Sentence


def load(_options: FilterOptions, _execution: Mapping) -> Engine:
    """Return the engine."""

    def unchanged(sections: Sequence[Sequence[str]]) -> list[FilteredText]:
        return [FilteredText(tuple(Sentence(text, KEPT) for text in sentences)) for sentences in sections]

    return Engine(unchanged, "none")
