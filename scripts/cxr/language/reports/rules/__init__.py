"""The rules engine: a lexicon as data (``resources/lexicon``), spaCy tokens, and negspacy scope."""

from functools import partial

from cxr.language.reports.engine import Structure


def load(options) -> Structure:
    """Return the engine's function. ``options`` needs ``effusion_without_side``."""
    from cxr.language.reports.rules.structure import structure_sentences

    return partial(structure_sentences, unsided_effusion=options.effusion_without_side == "both_bases")
