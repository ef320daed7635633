"""The lesion types. To add a type, add an entry to resources/lesions.toml and its words to resources/lexicon."""

import tomllib
from dataclasses import dataclass
from typing import Any

from cxr.base.paths import RESOURCES


@dataclass(frozen=True)
class LesionType:
    """One lesion type: its parent in the hierarchy, and its names in figures, codes, labels and sentences.

    ``parent`` is the more general type (paper, Appendix B). ``is_inferred`` says whether a lesion-inference instruction
    may name the type (Tables 10-12). ``global_share`` is the fraction of its negative pairs that are of type global
    (Table 10), None for the heart, whose negatives are all global. ``colour`` is its colour in figures. ``code`` is
    (value, scheme, meaning) in a DICOM segmentation, taken from ``code_source`` (SNOMED CT or a table of PS3.16).
    ``labels`` are its CheXpert labels, and ``box_class`` is the nearest VinBigData class. ``noun`` and ``plural`` are
    its names in MedGround's queries. ``wordings`` is {persona: word}. ``synonyms`` are words that mean only this type.
    """

    name: str
    colour: str
    code: tuple[str, str, str]
    labels: tuple[str, ...]
    box_class: str
    noun: str
    plural: str
    wordings: dict[str, str]
    synonyms: tuple[str, ...]
    code_source: str = "SNOMED CT"
    parent: str | None = None
    is_inferred: bool = False
    global_share: float | None = None


RESOURCE_FILES = ("lesions.toml",)
_ENTRIES: list[dict] = tomllib.loads((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))["lesion"]


def _lesion_type(entry: dict) -> LesionType:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    return LesionType(**fields)


LESION_TYPES = tuple(map(_lesion_type, _ENTRIES))  # the seven types, in the order of every table of the paper
