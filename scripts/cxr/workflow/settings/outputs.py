"""Settings of the masks, the dataset and the figures."""

from typing import Literal

from pydantic import model_validator

from cxr.base.vocabulary import LESIONS
from cxr.workflow.settings.base import AUTHORS, PAPER, Logic, Section, Share, key


class Masks(Section):
    """Algorithm 1: lesion masks, grounding, positive instructions."""

    denoise: Literal["both", "components_only"] = key(
        "both", "Whether c3 too uses the opened map, or only the components."
    )
    min_component_px: int = key(64, "Smaller components are dropped.", unit="pixels", ge=0)
    grow_tolerance: int = key(10, "Grey distance within which a component grows.", unit="grey levels", ge=0, le=255)
    grow_px: int = key(5, "Furthest a component grows.", unit="pixels", ge=0, le=64)
    effusion_fill_share: Share = key(
        0.15, "Lowest fraction of the lung that is added to a basal effusion.", unit="lung heights"
    )
    opposite_lung: Literal["cut", "keep"] = key(
        "cut", "What to do with components in a lung none of whose labels has a productive box."
    )
    ground_min_px: int = key(64, "Pixels of the mask a grounded label must hold.", unit="pixels", ge=0)
    ground_min_share: Share = key(0.05, "Fraction of the mask a grounded label must hold.")
    name_min_share: Share = key(0.10, "Fraction of the mask a zone must hold to name a lobe.")


class Dataset(Section):
    """Instruction-answer pairs."""

    weak_hedges: Literal["tentative", "block_only"] = key(
        "tentative", "Weakly hedged findings: tentative pairs (paper), or they only block negatives.", source=PAPER
    )
    global_requires_definitive: bool = key(True, "Whether a global positive needs all its findings definitive.")
    predicted_other: Logic = key(
        "strict",
        "strict: a finding explained by something that is no lesion (nipple shadow, overlap) makes no pair "
        "and only blocks.",
    )
    blocking: Logic = key("strict", "strict: positive findings without labels block every place where they could be.")
    kinds: Logic = key(
        "strict", "strict: opacity includes consolidation, which includes pneumonia, atelectasis and edema."
    )
    joint_location: Logic = key(
        "strict", "strict: a grounded sibling inside the named location joins, an ungrounded one drops the pair."
    )
    one_answer: Logic = key("strict", "strict: within a study one instruction text has one answer.")
    ctr_negative_max: float = key(
        0.45, "Largest cardiothoracic ratio at which cardiomegaly may be denied.", source=PAPER, ge=0, le=1
    )
    unknown_words_max: Share = key(
        0.05,
        "Fraction of a section's distinct words that may be unknown, in sentences that could hold a finding; "
        "above it no lesion type that the report does not mention is denied (engine rules).",
    )
    global_share: dict[Literal[LESIONS[1:]], Share] = key(
        lambda: {
            "pneumonia": 0.0212,
            "atelectasis": 0.1163,
            "opacity": 0.0019,
            "consolidation": 0.0441,
            "edema": 0.0222,
            "effusion": 0.2326,
        },
        "Fraction of a lesion type's negatives that are global, as nearly as the reports allow (from Table 10).",
        source=PAPER,
    )
    opacity_inference_share: Share = key(
        0.5,
        "Fraction of opacity's negatives at a place that are lesion inference (Table 10: 72,269 of 145,888).",
    )
    mimic_ils_layout: bool = key(False, "Also write the layout of the authors' release (JSON and PNG masks).")
    mimic_ils: str = key(
        "",
        "Folder of the authors' release, or of one in its layout, to train and score on, as the threshold set"
        " `mimic_ils`.",
    )
    mimic_ils_images: str = key(
        "", "Folder of its images (pNN/p<subject>/s<study>/<image>.jpg); 8-bit JPEG or PNG.", source=AUTHORS
    )
    layout_pixels: Literal["frame", "original"] = key(
        "frame",
        "Pixel grid of that layout's masks: the frame's, as in the release, or the image's own.",
        source=AUTHORS,
    )

    @model_validator(mode="after")
    def _mimic_ils_has_images(self) -> "Dataset":
        if self.mimic_ils and not self.mimic_ils_images:
            raise ValueError("mimic_ils is set, so dataset.mimic_ils_images must be too: give the folder of its images")
        if self.mimic_ils_images and not self.mimic_ils:
            raise ValueError("mimic_ils_images is set, so dataset.mimic_ils must be too: give the folder of the lines")
        return self


class Tables(Section):
    """The paper's tables from this data."""

    truth_min_px: int = key(
        64, "Pixels of a known lesion a zone must hold to truly have it (embedded cohort).", unit="pixels", ge=1
    )


class Ablation(Section):
    """Recall and yield of every threshold set and grid point."""

    interval: float = key(0.95, "Coverage of the confidence interval of a recall.", gt=0, lt=1)


class Figures(Section):
    """Pictures for people."""

    studies: int = key(12, "Number of studies that get an overlay panel.", ge=0, le=1000)
    dpi: int = key(110, "Resolution of the figures.", unit="dots per inch", ge=40, le=600)
    quality: int = key(85, "JPEG quality of panels, sheets and the page's images.", ge=30, le=95)


class Page(Section):
    """The results on one page, with pictures."""

    gallery: int = key(3, "Findings of each lesion type that the page shows with their boxes.", ge=0, le=50)
    boxes: int = key(
        8, "Boxes shown for a finding; half of them are kept ones, where there are that many.", ge=1, le=40
    )
    calibration: int = key(6, "Images whose masks are shown under every threshold set built.", ge=0, le=100)
    side: int = key(384, "Side of the page's images.", unit="pixels", ge=128, le=1024)
