"""Choose the units that experts judge, and assign them to experts with an order and a code.

A unit is a distinct (mask, target, location) of an image (paper, section 4); several pairs may share one. For a
negative pair the mask is empty, and the unit states that the lesion is absent there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from cxr.base.errors import UserError
from cxr.base.seeds import rng, stable_hash

LETTERS = "bcdfghjkmnpqrstvwxz"
"""Letters of item codes: no vowels, so no words arise, and no digits, which a spreadsheet could read as a number."""
CODE_LENGTH = 8
REQUIRED = (
    "pair_id", "subject_id", "study_id", "image_id", "section_name", "section_content", "target", "location", "mask_id",
)  # fmt: skip


@dataclass
class Unit:
    """A distinct (mask, target, location) of an image, and the pairs that share it."""

    subject_id: str
    study_id: str
    image_id: str
    target: str
    location: tuple[str, ...]
    """Locations as the instructions name them; empty for a negative of the whole image."""
    mask_id: str | None
    section_name: str
    report: str
    pair_ids: list[str] = field(default_factory=list)

    @property
    def positive(self) -> bool:
        """Whether it has a mask."""
        return self.mask_id is not None

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the unit; it does not depend on the rest of the split."""
        return (self.image_id, self.mask_id or "", self.target, *self.location)


def units_of(lines: Iterable[dict], source: str) -> list[Unit]:
    """Return the units of a split in the order of their first pairs. Raises UserError for a line that is not a pair."""
    unit_by_key: dict[tuple[str, ...], Unit] = {}
    for number, line in enumerate(lines, start=1):
        if missing := [name for name in REQUIRED if name not in line]:
            raise UserError(f"{source}, line {number} has no {missing[0]!r}: regenerate the dataset")
        unit = Unit(
            subject_id=line["subject_id"],
            study_id=line["study_id"],
            image_id=line["image_id"],
            target=line["target"],
            location=tuple(line["location"]),
            mask_id=line["mask_id"],
            section_name=line["section_name"],
            report=line["section_content"],
        )
        unit_by_key.setdefault(unit.key, unit).pair_ids.append(line["pair_id"])
    return list(unit_by_key.values())


def sample(units: Sequence[Unit], number: int, seed: int) -> list[Unit]:
    """Draw ``number`` units (0: all), in their order; a larger draw contains every smaller one with the same seed."""
    if not number or number >= len(units):
        return list(units)
    sampled_units = sorted(units, key=lambda unit: (stable_hash(seed, "draw", *unit.key), unit.key))[:number]
    keys = {unit.key for unit in sampled_units}
    return [unit for unit in units if unit.key in keys]


def deal(units: Sequence[Unit], experts: Sequence[str], seed: int) -> dict[str, list[Unit]]:
    """Return {expert: units}: positives go to everyone, negatives are split.

    All negatives of an image go to one expert, so that a page holds few pictures. The images, in an order drawn by the
    seed, go to the expert with the fewest negatives so far.
    """
    dealt = {expert: [unit for unit in units if unit.positive] for expert in experts}
    images: dict[str, list[Unit]] = {}
    for unit in units:
        if not unit.positive:
            images.setdefault(unit.image_id, []).append(unit)
    numbers = dict.fromkeys(experts, 0)
    for image_id in sorted(images, key=lambda image_id: (stable_hash(seed, "deal", image_id), image_id)):
        expert = min(experts, key=numbers.__getitem__)
        dealt[expert] += images[image_id]
        numbers[expert] += len(images[image_id])
    return dealt


class Keyed(Protocol):
    """What experts judge: its key depends on nothing else that they judge."""

    @property
    def key(self) -> tuple[str, ...]: ...


T = TypeVar("T", bound=Keyed)


def ordered(units: Sequence[T], expert: str, seed: int) -> list[tuple[str, T]]:
    """Return (code, unit) in an expert's own order. A code reveals nothing about the unit; experts share no code."""
    shuffled = sorted(units, key=lambda unit: unit.key)
    rng(seed, "order", expert).shuffle(shuffled)
    codes: dict[str, T] = {}
    for unit in shuffled:
        code, attempt = _code(seed, expert, unit, 0), 0
        while code in codes:
            attempt += 1
            code = _code(seed, expert, unit, attempt)
        codes[code] = unit
    return list(codes.items())


def _code(seed: int, expert: str, unit: Keyed, attempt: int) -> str:
    number, letters = stable_hash(seed, "code", expert, attempt, *unit.key), []
    for _ in range(CODE_LENGTH):
        number, letter = divmod(number, len(LETTERS))
        letters.append(LETTERS[letter])
    return "".join(letters)
