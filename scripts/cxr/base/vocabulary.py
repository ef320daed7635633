"""The project's shared vocabulary: lesions, zones, locations, box classes, conditions.

Sides are the patient's: *right* is on the image's left. Sources: paper Table 9 (valid locations),
Figure 10 (the 15 zone labels), Appendix B (lesion hierarchy), VinBigData (box classes).
"""

from cxr.base.lesions import LESION_TYPES

LESIONS = tuple(lesion.name for lesion in LESION_TYPES)  # the seven types, in the order of every table of the paper
LUNG_LESIONS = tuple(lesion.name for lesion in LESION_TYPES if lesion.name != "cardiomegaly")

FINDINGS: dict[str, str] = {
    "atelectasis": "Atelectasis",
    "cardiomegaly": "Cardiomegaly",
    "consolidation": "Consolidation",
    "edema": "Edema",
    "opacity": "Lung Opacity",
    "effusion": "Pleural Effusion",
    "pneumothorax": "Pneumothorax",
}
"""Findings of SemiSynCXR, {finding: name in tables}, in the order of its paper's tables. ILS has no pneumothorax."""

INFERRED_LESIONS = tuple(lesion.name for lesion in LESION_TYPES if lesion.is_inferred)
"""Lesion types that can answer an instruction which asks for the type of an opacity (Tables 10-12)."""

NO_LESION = ("nipple", "overlap", "superimpos", "summation", "artifact", "artefact", "skin fold", "fat pad")
"""Words that explain a finding as something other than a lesion ("likely a nipple shadow")."""

PERSONAS = ("medical_expert", "layperson", "ai_developer")  # people in whose words instructions are rewritten (C.3)

SIDES = ("right", "left")
LUNGS = ("right lung", "left lung")
ZONE_LEVELS = ("apical zone lung", "upper zone lung", "mid zone lung", "lung base")
VALID_LOCATIONS = LUNGS + tuple(f"{side} {level}" for side in SIDES for level in ZONE_LEVELS)  # Table 9

LOBES = (
    "lung lower lobe left", "lung upper lobe left", "lung lower lobe right", "lung middle lobe right",
    "lung upper lobe right",
)  # fmt: skip
ZONE_LABELS = VALID_LOCATIONS + LOBES  # the 15 zone labels of Figure 10

HEART = "heart"
CARDIOMEDIASTINUM = "cardiomediastinum"
ORGAN_LABELS = ("right lung", "left lung", "heart")  # every organs engine returns these; some add ``cardiomediastinum``
ANATOMY_LABELS = (*ZONE_LABELS, HEART)  # labels that every anatomy engine must return, in this order

LOBE_ZONES: dict[str, tuple[str, ...]] = {
    "lung upper lobe right": ("right apical zone lung", "right upper zone lung"),
    "lung middle lobe right": ("right mid zone lung",),
    "lung lower lobe right": ("right mid zone lung", "right lung base"),
    "lung upper lobe left": ("left apical zone lung", "left upper zone lung", "left mid zone lung"),
    "lung lower lobe left": ("left mid zone lung", "left lung base"),
}
"""{lobe: the zones that the lobe covers}, chosen by this project."""

BOX_CLASSES = (
    "Aortic enlargement", "Atelectasis", "Calcification", "Cardiomegaly", "Consolidation", "ILD",
    "Infiltration", "Lung Opacity", "Nodule/Mass", "Other lesion", "Pleural effusion", "Pleural thickening",
    "Pneumothorax", "Pulmonary fibrosis",
)  # fmt: skip
"""The VinBigData classes, in Kaggle's order. Look a class up by name, never by index."""

BOX_CONDITIONS = ("anatomy", "conf", "signal", "size", "zero_area", "empty_after_refine")
"""Conditions that a box must meet to add to a mask. Each condition that fails sets one bit of the box's verdict.

The first four are c1 to c4 of the paper's Algorithm 1. The last two fail if the box has no area, or if the mask is
empty after its refinement.
"""

CATEGORIES = (
    "thoracic spine", "cervical spine", "lumbar spine", "clavicle", "scapula", "rib", "sternum", "diaphragm",
    "mediastinum", "abdomen", "heart", "breast", "trachea", "vessels", "lung", "pleura", "lateral view location",
)  # fmt: skip
"""The 17 categories of locations that the paper's language model chooses from (Figure 10, step 1)."""

SPLITS = ("train", "validate", "test")


def kinds_under(lesion: str) -> tuple[str, ...]:
    """Return all lesion types below ``lesion`` in the hierarchy, each before its subtypes, or () if it has none."""
    children = (child.name for child in LESION_TYPES if child.parent == lesion)
    return tuple(name for child in children for name in (child, *kinds_under(child)))


def side_of(label: str) -> str | None:
    """Return ``"right"`` or ``"left"`` for a lung label, None for a label without a side."""
    words = label.split()
    return next((side for side in SIDES if side in words), None)


def zones_of(side: str) -> tuple[str, ...]:
    """Return the four zone names of one lung, from apex to base."""
    return tuple(f"{side} {level}" for level in ZONE_LEVELS)


def in_table_order(locations) -> list[str]:
    """Sort valid locations into the order of Table 9, without duplicates. Raises ValueError for any other name."""
    return sorted(set(locations), key=VALID_LOCATIONS.index)


BLACKED_OUT = "burned-in text blacked out"  # end of the note on an image with text blacked out (corrected.parquet)


def list_failed_conditions(verdict: int) -> list[str]:
    """Return the names of the conditions that a box fails, by the bits of its ``verdict`` (``BOX_CONDITIONS``)."""
    return [name for bit, name in enumerate(BOX_CONDITIONS) if verdict >> bit & 1]
