"""The lesion types. A new one is an entry in resources/lesions.toml, and its words in the lexicon."""

import tomllib
from dataclasses import dataclass

from cxr.base.paths import RESOURCES


@dataclass(frozen=True)
class LesionType:
    """One lesion type: its place in the hierarchy, and how figures, codes, labels and sentences name it.

    ``parent``: the type it is a kind of (paper, Appendix B); ``is_inferred``: a lesion-inference instruction may name
    it (Tables 10-12); ``global_share``: the fraction of its negatives that are global (Table 10), None for the heart,
    whose negatives are all global; ``colour``: in figures; ``code``: (value, scheme, meaning) in a DICOM segmentation,
    from ``code_source``, SNOMED CT or a table of PS3.16; ``labels``: CheXpert's; ``box_class``: the nearest VinBigData
    class; ``noun``, ``plural``: in MedGround's queries; ``wordings``: {persona: its word}; ``synonyms``: words in a
    paraphrase that mean this type alone.
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


LESION_TYPES = tuple(
    LesionType(**{name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()})
    for entry in _ENTRIES
)  # the seven types, in the order of every table of the paper
