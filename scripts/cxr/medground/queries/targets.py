"""Targets for which a language model finds the words: drawn by seed among those that some query of ours decides."""

from collections.abc import Mapping

from cxr.base.seeds import rng
from cxr.medground.logic.decide import Decider
from cxr.medground.queries.forms import Forms, Target, kind_of

TRIES = 12
"""Draws of a target that is new."""


def drawn_targets(
    decider: Decider, forms: Forms, kinds: Mapping[str, float], num_queries: int, *key: object
) -> tuple[list[tuple[int, Target]], list[tuple[int, str]]]:
    """Return [(number, target)] and [(number, reason)] of an image's wanted queries, numbered from 0.

    kinds: share of each kind; ``key``: what the draws depend on. No target is drawn twice.
    """
    by_kind: dict[str, list[Target]] = {}
    for target in sorted(forms.of):
        if kind := kind_of(target, decider):
            by_kind.setdefault(kind, []).append(target)
    targets, lost, used = [], [], set()
    for number in range(num_queries):
        draw = rng(*key, number)
        target = _new(by_kind, kinds, used, draw)
        if target is None:
            lost.append((number, "budget" if forms.spent else "undecidable"))
        else:
            used.add(target)
            targets.append((number, target))
    return targets, lost


def _new(by_kind: Mapping[str, list[Target]], kinds: Mapping[str, float], used: set[Target], draw) -> Target | None:
    for _ in range(TRIES if by_kind else 0):
        names = sorted(by_kind)
        (name,) = draw.choices(names, [kinds[kind] for kind in names])
        target = draw.choice(by_kind[name])
        if target not in used:
            return target
    return None
