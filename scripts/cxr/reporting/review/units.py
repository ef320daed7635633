"""Sample units for review, and assign them to experts, in an order and with item codes that differ for each expert.

A unit is a distinct (mask, lesion type, location) of an image (paper, section 4), which several pairs may share. A
negative pair has no mask. Its unit states that the lesion is absent at the location.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from typing import TypeVar

from cxr.base.errors import UserError
from cxr.base.seeds import make_rng, stable_hash

T = TypeVar("T")
Key = tuple[str, ...]
LETTERS = "bcdfghjkmnpqrstvwxz"
"""Letters of item codes. Vowels could form words, and a spreadsheet may convert digits, so there are neither."""
CODE_LENGTH = 8
REQUIRED = (
    "pair_id", "subject_id", "study_id", "image_id", "section_name", "section_content", "target", "location", "mask_id",
    "certainty",
)  # fmt: skip
"""Fields that every line of the dataset must have."""


@dataclass
class Unit:
    """A distinct (mask, lesion type, location) of an image, and the pairs that share it."""

    subject_id: str
    study_id: str
    image_id: str
    target: str
    location: tuple[str, ...]
    """Locations as the instructions name them; empty for a negative of the whole image."""
    mask_id: str | None
    section_name: str
    report: str
    certainty: str | None = None
    pair_ids: list[str] = field(default_factory=list)

    @property
    def is_positive(self) -> bool:
        """Whether the unit has a mask."""
        return self.mask_id is not None

    @property
    def key(self) -> Key:
        """Texts that identify the unit among all units: image, mask, lesion type and locations."""
        return (self.image_id, self.mask_id or "", self.target, *self.location)


def collect_units(lines: Iterable[dict], source: str) -> list[Unit]:
    """Return the units of a split in the order of their first pairs. Raises UserError for a line that is not a pair.
    ``lines`` are the pairs, and ``source`` is the path that the error names."""
    unit_by_key: dict[Key, Unit] = {}
    for number, line in enumerate(lines, start=1):
        if missing := [name for name in REQUIRED if name not in line]:
            raise UserError(f"{source}, line {number} has no field {missing[0]!r}: run `snakemake dataset` again")
        values = {name: line[name] for name in REQUIRED[1:] if name != "section_content"}
        unit = Unit(**values | {"location": tuple(line["location"]), "report": line["section_content"]})
        unit_by_key.setdefault(unit.key, unit).pair_ids.append(line["pair_id"])
    return list(unit_by_key.values())


def draw_sample(units: Sequence[Unit], number: int, seed: int) -> list[Unit]:
    """Return a random sample of ``number`` units (0: all) in the order of ``units``. A larger sample with the same seed
    contains every smaller one."""
    if not number or number >= len(units):
        return list(units)
    sampled_units = sorted(units, key=lambda unit: (stable_hash(seed, "draw", *unit.key), unit.key))[:number]
    keys = {unit.key for unit in sampled_units}
    return [unit for unit in units if unit.key in keys]


def deal_units(units: Sequence[Unit], experts: Sequence[str], seed: int) -> dict[str, list[Unit]]:
    """Return {expert: units}. Every expert gets all units with a mask; the negatives are divided among the experts.

    All negatives of an image go to one expert, so that a page has few images. Images are assigned in a random order,
    each to the expert with the fewest negatives so far.
    """
    dealt = {expert: [unit for unit in units if unit.is_positive] for expert in experts}
    images: dict[str, list[Unit]] = {}
    for unit in units:
        if not unit.is_positive:
            images.setdefault(unit.image_id, []).append(unit)
    numbers = dict.fromkeys(experts, 0)
    for image_id in sorted(images, key=lambda image_id: (stable_hash(seed, "deal", image_id), image_id)):
        expert = min(experts, key=numbers.__getitem__)
        dealt[expert] += images[image_id]
        numbers[expert] += len(images[image_id])
    return dealt


def order_items(
    units: Sequence[T], expert: str, seed: int, key: Callable[[T], Key] = attrgetter("key")
) -> list[tuple[str, T]]:
    """Return (item code, unit) of all units in random order. The order and the codes depend on the expert. A code
    reveals nothing about its unit. ``key`` returns texts that identify a unit among all units."""
    shuffled = sorted(units, key=key)
    make_rng(seed, "order", expert).shuffle(shuffled)
    codes: dict[str, T] = {}
    for unit in shuffled:
        candidates = (_make_code(seed, expert, key(unit), attempt) for attempt in count())
        codes[next(code for code in candidates if code not in codes)] = unit
    return list(codes.items())


def _make_code(seed: int, expert: str, key: Key, attempt: int) -> str:
    number = stable_hash(seed, "code", expert, attempt, *key)
    return "".join(LETTERS[number // len(LETTERS) ** place % len(LETTERS)] for place in range(CODE_LENGTH))
