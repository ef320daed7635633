"""Which absent findings are asked: a finding's name must not tell whether it is there."""

from collections.abc import Callable, Iterable, Mapping

Absence = tuple[str, str, tuple[str, ...]]
"""Image, finding, facts that say it is absent."""


def chosen(
    pool: Iterable[tuple[str, Absence]],
    present: Mapping[tuple[str, str], int],
    share: float,
    rank: Callable[[Absence], int],
) -> list[Absence]:
    """Return the absences of a ``pool`` of (split, absence) that are asked, sorted.

    ``present``: {(split, finding): samples of abnormality_grounding}; ``share``: absences for each of them. Of each
    finding there are as many, the first by ``rank``; where it has too few, others of the split make up for them, but no
    finding that the split never has.
    """
    held: dict[str, dict[str, list[Absence]]] = {}
    for split, one in pool:
        if (split, one[1]) in present:
            held.setdefault(split, {}).setdefault(one[1], []).append(one)
    found: list[Absence] = []
    for split, names in sorted(held.items()):
        wanted = {name: round(share * count) for (of, name), count in sorted(present.items()) if of == split}
        drawn = {name: sorted(own, key=rank) for name, own in names.items()}
        some = [one for name, own in sorted(drawn.items()) for one in own[: wanted[name]]]
        rest = sorted((one for name, own in drawn.items() for one in own[wanted[name] :]), key=rank)
        found += some + rest[: sum(wanted.values()) - len(some)]
    return sorted(found)
