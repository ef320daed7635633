"""The lesion types. A new one is an entry here, and its words in resources/lexicon/entities.yaml."""

from dataclasses import dataclass


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


LESION_TYPES = (
    LesionType(
        "cardiomegaly",
        colour="#D55E00",
        code=("8186001", "SCT", "Cardiomegaly"),
        labels=("Cardiomegaly",),
        box_class="Cardiomegaly",
        noun="enlarged heart",
        plural="enlarged hearts",
        wordings={"medical_expert": "cardiomegaly", "layperson": "enlarged heart", "ai_developer": "cardiomegaly"},
        synonyms=(
            "cardiomegaly", "enlarged heart", "enlarged cardiac silhouette", "enlargement of the heart",
            "enlarged heart shadow", "cardiac enlargement", "heart enlargement",
        ),
    ),
    LesionType(
        "pneumonia",
        colour="#E69F00",
        code=("233604007", "SCT", "Pneumonia"),
        labels=("Pneumonia",),
        box_class="Infiltration",
        global_share=0.0212,
        noun="pneumonia area",
        plural="pneumonia areas",
        wordings={"medical_expert": "pneumonia", "layperson": "lung infection", "ai_developer": "pneumonia"},
        synonyms=("pneumonia", "lung infection", "infection of the lung", "infected lung tissue"),
        parent="consolidation",
        is_inferred=True,
    ),
    LesionType(
        "atelectasis",
        colour="#56B4E9",
        code=("46621007", "SCT", "Atelectasis"),
        labels=("Atelectasis",),
        box_class="Atelectasis",
        global_share=0.1163,
        noun="atelectasis",
        plural="atelectases",
        wordings={"medical_expert": "atelectasis", "layperson": "collapsed lung tissue", "ai_developer": "atelectasis"},
        synonyms=("atelectasis", "atelectatic lung tissue", "collapsed lung tissue", "collapse of lung tissue"),
        parent="consolidation",
        is_inferred=True,
    ),
    LesionType(
        "opacity",
        colour="#F0E442",
        code=("112001", "DCM", "Opacity"),
        code_source="CID 6102",
        labels=("Lung Opacity",),
        box_class="Lung Opacity",
        global_share=0.0019,
        noun="opacity",
        plural="opacities",
        wordings={"medical_expert": "pulmonary opacity", "layperson": "cloudy area", "ai_developer": "opacity"},
        synonyms=(
            "opacity", "opacities", "lung opacity", "pulmonary opacity", "cloudy area", "cloudy patch",
            "cloudy patches", "hazy area", "hazy patch", "hazy patches",
        ),
    ),
    LesionType(
        "consolidation",
        colour="#CC79A7",
        code=("95436008", "SCT", "Lung consolidation"),
        labels=("Consolidation",),
        box_class="Consolidation",
        global_share=0.0441,
        noun="consolidation",
        plural="consolidations",
        wordings={
            "medical_expert": "consolidation", "layperson": "solid-looking area", "ai_developer": "consolidation",
        },
        synonyms=("consolidation", "consolidated lung tissue", "solid-looking area", "solid-looking lung tissue"),
        parent="opacity",
    ),
    LesionType(
        "edema",
        colour="#009E73",
        code=("19242006", "SCT", "Pulmonary edema"),
        code_source="CID 3700",
        labels=("Edema",),
        box_class="ILD",
        global_share=0.0222,
        noun="edema area",
        plural="edema areas",
        wordings={
            "medical_expert": "pulmonary edema", "layperson": "fluid inside the lung tissue", "ai_developer": "edema",
        },
        synonyms=(
            "edema", "oedema", "pulmonary edema", "pulmonary oedema", "lung edema", "lung oedema",
            "fluid inside the lung tissue", "fluid in the lung tissue",
        ),
        parent="consolidation",
        is_inferred=True,
    ),
    LesionType(
        "effusion",
        colour="#0072B2",
        code=("60046008", "SCT", "Pleural effusion"),
        code_source="CID 645",
        labels=("Pleural Effusion",),
        box_class="Pleural effusion",
        global_share=0.2326,
        noun="pleural effusion",
        plural="pleural effusions",
        wordings={
            "medical_expert": "pleural effusion", "layperson": "fluid around the lung", "ai_developer": "effusion",
        },
        synonyms=("effusion", "pleural effusion", "pleural fluid", "fluid around the lung"),
    ),
)  # fmt: skip
"""The seven types, in the order of every table of the paper."""
