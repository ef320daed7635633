"""The vocabulary of the synthetic reports: places, and sentences for every kind of finding. All sentences are our own.

Templates use ``{adj}`` (an adjective of place, "right lower lobe", "left basilar"), ``{noun}`` (a place after "in the"
or "at the"), ``{size}`` and ``{change}`` (may be empty). They are capitalised and spaced when they are combined.
"""

from dataclasses import dataclass

from cxr.base.vocabulary import LUNGS


@dataclass(frozen=True)
class Place:
    """A location as radiologists write it, and its zone labels."""

    labels: tuple[str, ...]
    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]


def _sided(side: str) -> dict[str, Place]:
    lobes = {
        "right": {
            "upper lobe": Place(("lung upper lobe right",), ("right upper lobe", "RUL"), ("right upper lobe",)),
            "middle lobe": Place(("lung middle lobe right",), ("right middle lobe", "RML"), ("right middle lobe",)),
            "lower lobe": Place(("lung lower lobe right",), ("right lower lobe", "RLL"), ("right lower lobe", "RLL")),
        },
        "left": {
            "upper lobe": Place(("lung upper lobe left",), ("left upper lobe", "LUL"), ("left upper lobe",)),
            "lower lobe": Place(("lung lower lobe left",), ("left lower lobe", "LLL"), ("left lower lobe", "LLL")),
        },
    }[side]
    return {
        f"{side} apex": Place(
            (f"{side} apical zone lung",), (f"{side} apical",), (f"{side} apex", f"{side} lung apex")
        ),
        f"{side} upper": Place(
            (f"{side} upper zone lung",), (f"{side} upper lung", f"{side} upper zone"), (f"{side} upper lung zone",)
        ),
        f"{side} mid": Place(
            (f"{side} mid zone lung",),
            (f"{side} mid lung", f"{side} perihilar"),
            (f"{side} mid lung", f"{side} midlung"),
        ),
        f"{side} base": Place(
            (f"{side} lung base",), (f"{side} basilar", f"{side} basal"), (f"{side} lung base", f"{side} base")
        ),
        f"{side} lung": Place((f"{side} lung",), (f"{side} lung",), (f"{side} lung",)),
        **{f"{side} {name}": place for name, place in lobes.items()},
    }


PLACES: dict[str, Place] = {
    **_sided("right"),
    **_sided("left"),
    "both bases": Place(
        ("right lung base", "left lung base"), ("bibasilar", "bibasal"), ("lung bases", "bases", "bases bilaterally")
    ),
    "both lungs": Place(LUNGS, ("bilateral", "diffuse bilateral"), ("lungs bilaterally",)),
    "both apices": Place(("right apical zone lung", "left apical zone lung"), ("biapical",), ("lung apices",)),
    "retrocardiac": Place((), ("retrocardiac",), ("retrocardiac region",)),
    "heart": Place((), ("",), ("heart",)),
}
"""{our name: place}. Retrocardiac has no zone label (in Figure 10 it is a lateral view location)."""

SIZES = {
    "effusion": ("small", "moderate", "trace", "large"),
    "edema": ("mild", "moderate", "severe"),
    "cardiomegaly": ("mild", "moderate", "stable"),
    "atelectasis": ("mild", "minimal", "moderate"),
    "opacity": ("small", "mild", "moderate", "subtle"),
}
CHANGES = ("", "", "", "unchanged ", "new ", "increased ", "stable ", "persistent ", "improving ")

DIRECT: dict[str, tuple[str, ...]] = {
    "opacity": (
        "there is a {change}hazy opacity in the {noun}",
        "{change}{adj} opacity",
        "{change}patchy {adj} opacities are seen",
        "an ill-defined opacity projects over the {noun}",
        "{change}airspace opacity at the {noun}",
        "increased {adj} opacification is noted",
        "a vague area of opacity is present in the {noun}",
        "heterogeneous {adj} opacity, {size} in extent",
    ),
    "consolidation": (
        "there is {change}{adj} consolidation",
        "{change}focal consolidation in the {noun}",
        "dense consolidation occupies the {noun}",
        "{adj} consolidation with air bronchograms is present",
        "confluent airspace consolidation is seen in the {noun}",
    ),
    "pneumonia": (
        "findings are those of {adj} pneumonia",
        "{change}{adj} pneumonia",
        "there is pneumonia in the {noun}",
        "multifocal pneumonia involves the {noun}",
        "bronchopneumonia is present at the {noun}",
    ),
    "atelectasis": (
        "{change}linear atelectasis at the {noun}",
        "there is {size} {adj} atelectasis",
        "plate-like atelectasis is seen in the {noun}",
        "{change}subsegmental {adj} atelectasis",
        "streaky atelectatic changes in the {noun}",
        "{adj} atelectasis with mild volume loss",
    ),
    "edema": (
        "there is {size} pulmonary edema",
        "{change}interstitial pulmonary edema",
        "{size} interstitial edema is present bilaterally",
        "pulmonary edema, {size} in degree",
        "perihilar haziness and septal lines are in keeping with pulmonary edema",
    ),
    "effusion": (
        "{change}{size} {adj} pleural effusion",
        "there is a {size} {adj} pleural effusion",
        "a {size} {adj} effusion is present",
        "{adj} pleural effusion is {size} and layers dependently",
    ),
    "cardiomegaly": (
        "the heart is enlarged",
        "there is {size} cardiomegaly",
        "the cardiac silhouette is moderately enlarged",
        "heart size is mildly enlarged",
        "{change}cardiomegaly",
        "the cardiomediastinal silhouette is enlarged",
    ),
}
"""Plain statements. An effusion needs a place with a label, which is always a base."""

HARD: dict[str, tuple[str, ...]] = {
    "opacity": (
        "the {noun} looks whiter than its fellow",
        "there is veiling of the {noun}",
        "there is an opacity level with the sixth posterior rib",
    ),
    "consolidation": (
        "the {noun} is airless apart from a few patent bronchi",
        "consolidation with its upper border at the fifth posterior rib",
    ),
    "pneumonia": ("the {noun} shows an infective process",),
    "atelectasis": (
        "the {noun} is partly deflated",
        "crowding of bronchi at the {noun} from loss of volume",
        "plate-like atelectasis two fingers above the diaphragm",
    ),
    "edema": ("the lungs are wet", "fluid overload pattern in the lungs"),
    "effusion": ("{adj} pleural fluid obscures the hemidiaphragm", "meniscus at the {noun}"),
    "cardiomegaly": ("the transverse diameter of the heart exceeds half of that of the chest",),
}
"""True statements with words or places that a lexicon may lack."""

STRONG: dict[str, tuple[str, ...]] = {
    "opacity": ("probable {adj} opacity", "there is likely a {size} opacity in the {noun}"),
    "consolidation": ("probable {adj} consolidation", "likely developing consolidation in the {noun}"),
    "pneumonia": ("{adj} pneumonia is suspected", "probable {adj} pneumonia"),
    "atelectasis": ("likely {adj} atelectasis", "probable {size} atelectasis in the {noun}"),
    "edema": ("probable {size} pulmonary edema", "there is likely {size} pulmonary edema"),
    "effusion": ("probable {size} {adj} pleural effusion", "likely {size} {adj} pleural effusion"),
    "cardiomegaly": ("the heart is probably enlarged", "there is likely mild cardiomegaly"),
}
WEAK: dict[str, tuple[str, ...]] = {
    "opacity": ("possible {adj} opacity", "a subtle {adj} opacity cannot be excluded"),
    "consolidation": ("early consolidation in the {noun} cannot be excluded", "possible {adj} consolidation"),
    "pneumonia": ("{adj} pneumonia cannot be excluded", "possible {adj} pneumonia"),
    "atelectasis": ("possible {adj} atelectasis", "there may be {size} atelectasis in the {noun}"),
    "edema": ("possible mild pulmonary edema", "mild pulmonary edema cannot be excluded"),
    "effusion": ("a small {adj} pleural effusion may be present", "possible trace {adj} pleural effusion"),
    "cardiomegaly": ("possible mild cardiomegaly",),
}

LINKED: dict[str, tuple[str, ...]] = {
    "definite": (
        "{change}{adj} opacity due to {disease}",
        "opacity in the {noun} represents {disease}",
    ),
    "strong": (
        "{change}{adj} opacity, likely {disease}",
        "opacities in the {noun} are concerning for {disease}",
        "patchy {adj} opacity, most likely representing {disease}",
        "{adj} opacification is suspicious for {disease}",
        "hazy opacity at the {noun} probably reflects {disease}",
    ),
    "weak": (
        "{adj} opacity may represent {disease}",
        "opacity in the {noun} could reflect {disease}",
        "{change}{adj} opacity, possibly {disease}",
    ),
}
"""An opacity with the disease that explains it: one finding, whose target is the disease."""

NEGATABLE = {
    "opacity": ("focal opacity", "airspace opacity"),
    "consolidation": ("focal consolidation", "consolidation"),
    "pneumonia": ("pneumonia",),
    "atelectasis": ("atelectasis",),
    "edema": ("pulmonary edema", "overt pulmonary edema"),
    "effusion": ("pleural effusion", "large pleural effusion", "effusion"),
    "cardiomegaly": ("cardiomegaly",),
}
NEGATIONS = (
    "no {list}",
    "there is no {list}",
    "no evidence of {list}",
    "without evidence of {list}",
    "negative for {list}",
    "{list} is not identified",
    "there is no convincing {list}",
)
RESOLVED = ("previously seen {term} has resolved", "interval clearing of {term}")
NOTHING_NEW = ("no new {term}", "no new {term} since the prior study")
"""These deny nothing, because they only compare."""

CLEAR = (
    "the lungs are clear",
    "lungs are well expanded and clear",
    "both lungs are clear",
    "the lungs are normally aerated",
)
ELSE_CLEAR = ("the lungs are otherwise clear", "elsewhere the lungs are clear", "the remaining lung is clear")
NORMAL_HEART = (
    "heart size is normal",
    "cardiomediastinal silhouette is within normal limits",
    "the heart is normal in size",
    "cardiac and mediastinal contours are unremarkable",
)
BONES = (
    "no acute osseous abnormality",
    "degenerative changes of the thoracic spine",
    "the visualized bony structures are intact",
    "old healed rib fractures",
    "mild dextroscoliosis",
)
DEVICES = (
    "a right PICC terminates in the mid SVC",
    "endotracheal tube tip lies 4 cm above the carina",
    "median sternotomy wires are intact",
    "left chest wall pacemaker leads are in standard position",
    "enteric tube courses below the diaphragm",
    "right internal jugular catheter ends at the cavoatrial junction",
)
OTHERS = {
    "nodule": ("a nodule is seen in the {noun}", "{adj} nodule", "calcified granuloma in the {noun}"),
    "scar": ("{adj} scarring", "scarring in the {noun}", "chronic fibrotic scar at the {noun}"),
}
PNEUMOTHORAX = ("no pneumothorax", "there is no pneumothorax", "no visible pneumothorax")
REASONS = (
    "cough",
    "shortness of breath",
    "fever",
    "chest pain",
    "hypoxia",
    "preoperative evaluation",
    "line placement",
)
OTHER_EXAMS = ("None.", "Chest radiograph of ___.", "___.", "Prior study from ___.")
NORMAL_IMPRESSIONS = (
    "no acute cardiopulmonary process",
    "no acute cardiopulmonary abnormality",
    "normal chest radiograph",
)
