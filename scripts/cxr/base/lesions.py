"""The lesion types. To add a type, add an entry to resources/lesions.toml and its words to resources/lexicon."""

import tomllib
from dataclasses import dataclass
from typing import Any

from cxr.base.paths import RESOURCES


@dataclass(frozen=True)
class LesionType:
    """One lesion type: its parent in the hierarchy, and its names in figures, codes, labels and sentences."""

    name: str
    colour: str  # colour in figures
    code: tuple[str, str, str]  # (value, scheme, meaning) in a DICOM segmentation
    labels: tuple[str, ...]  # CheXpert labels
    box_class: str  # nearest VinBigData class
    noun: str  # name in MedGround's queries
    plural: str  # plural of ``noun``
    wordings: dict[str, str]  # {persona in whose words an instruction is written: word}
    synonyms: tuple[str, ...]  # words that mean only this type
    code_source: str = "SNOMED CT"  # source of ``code``: SNOMED CT or a table of PS3.16
    parent: str | None = None  # the more general type (paper, Appendix B)
    is_inferred: bool = False  # may answer an instruction that asks for the type of an opacity (Tables 10-12)
    # fraction of its negative pairs whose instruction names no location (Table 10); None for the heart
    global_share: float | None = None


RESOURCE_FILES = ("lesions.toml",)
_ENTRIES: list[dict] = tomllib.loads((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))["lesion"]


def _lesion_type(entry: dict) -> LesionType:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    return LesionType(**fields)


LESION_TYPES = tuple(map(_lesion_type, _ENTRIES))  # the seven types, in the order of every table of the paper
