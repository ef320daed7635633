"""The rules engine: a lexicon as data (``resources/lexicon``), spaCy tokens, and negspacy scope."""

from functools import partial

from cxr.language.reports.engine import Structure


def load(options) -> Structure:
    """Return the engine. ``options`` needs ``lexicon`` (folder) and ``effusion_without_side``."""
    from cxr.language.reports.rules import lexicon, structure

    return partial(
        structure.structure_sentences,
        lexicon=lexicon.load_lexicon(str(options.lexicon)),
        unsided_effusion=options.effusion_without_side == "both_bases",
    )
