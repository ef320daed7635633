"""The rules engine. It finds the phrases of a lexicon (``resources/lexicon``) and the denials that apply to them."""

from functools import partial

from cxr.language.reports.engine import Structure


def load(options) -> Structure:
    """Return the function that converts sentences to finding tuples. ``options`` needs ``effusion_without_side``."""
    from cxr.language.reports.rules.structure import structure_sentences

    return partial(structure_sentences, unsided_effusion=options.effusion_without_side == "both_bases")
