"""Settings of the masks, the dataset and the figures."""

from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Logic, Section, Share, constraint, key
from cxr.base.vocabulary import LESIONS


class Masks(Section):
    """Algorithm 1: lesion masks, grounding, positive instructions."""

    denoise: Literal["both", "components_only"] = key(
        "both",
        "Use of the opened map. both: in condition c3 and for the components; components_only: for the components.",
    )
    min_component_px: int = key(64, "Smallest size of a component; smaller ones are dropped.", unit="pixels", ge=0)
    grow_tolerance: int = key(
        10, "Largest grey-level difference over which a component grows.", unit="grey levels", ge=0, le=255
    )
    grow_px: int = key(5, "Largest distance by which a component grows.", unit="pixels", ge=0, le=64)
    effusion_fill_share: Share = key(
        0.15, "Height of the lowest part of the lung that is added to a basal effusion.", unit="lung heights"
    )
    opposite_lung: Literal["cut", "keep"] = key(
        "cut", "What to do with components in a lung without a productive box for any of its labels."
    )
    ground_min_px: int = key(64, "Number of the mask's pixels that a grounded label must contain.", unit="pixels", ge=0)
    ground_min_share: Share = key(0.05, "Fraction of the mask that a grounded label must contain.")
    name_min_share: Share = key(0.10, "Fraction of the mask that a zone must contain to name a lobe.")


class Dataset(Section):
    """Instruction-answer pairs."""

    weak_hedges: Literal["tentative", "block_only"] = key(
        "tentative",
        "Weakly hedged findings. tentative: they make tentative pairs (paper); block_only: they only block negatives.",
        source=PAPER,
    )
    global_requires_definitive: bool = key(True, "Whether all findings of a global positive must be definitive.")
    predicted_other: Logic = key(
        "strict",
        "strict: a finding that is explained by something other than a lesion (nipple shadow, overlap) makes no "
        "pair and only blocks negatives.",
    )
    blocking: Logic = key(
        "strict", "strict: positive findings without labels block every location where they could be."
    )
    kinds: Logic = key(
        "strict", "strict: opacity includes consolidation, which includes pneumonia, atelectasis and edema."
    )
    joint_location: Logic = key(
        "strict",
        "strict: a grounded finding of the same type inside the named location joins the pair's mask; an ungrounded "
        "one drops the pair.",
    )
    one_answer: Logic = key("strict", "strict: within a study, an instruction text has one answer.")
    ctr_negative_max: float = key(
        0.45, "Largest cardiothoracic ratio at which cardiomegaly may be denied.", source=PAPER, ge=0, le=1
    )
    unknown_words_max: Share = key(
        0.05,
        "Fraction of unknown words, among a section's distinct words in sentences that could hold a finding, above "
        "which no unmentioned lesion type becomes a negative (engine rules).",
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
        "Fraction of opacity's local negatives that are lesion inference (Table 10: 72,269 of 145,888).",
    )
    mimic_ils_layout: bool = key(False, "Also write the layout of the authors' release (JSON and PNG masks).")
    mimic_ils: str = key(
        "",
        "Folder of the authors' release, or of a dataset in its layout. Training and evaluation use it as the "
        "threshold set `mimic_ils`.",
    )
    mimic_ils_images: str = key(
        "", "Folder of its images (pNN/p<subject>/s<study>/<image>.jpg); 8-bit JPEG or PNG.", source=AUTHORS
    )
    layout_pixels: Literal["frame", "original"] = key(
        "frame",
        "Pixel grid of that layout's masks: the frame's, as in the release, or the image's own.",
        source=AUTHORS,
    )

    @constraint
    def _mimic_ils_has_images(self) -> None:
        if self.mimic_ils and not self.mimic_ils_images:
            raise ValueError(
                "mimic_ils is set, so dataset.mimic_ils_images must be set too: give the folder of its images"
            )
        if self.mimic_ils_images and not self.mimic_ils:
            raise ValueError(
                "mimic_ils_images is set, so dataset.mimic_ils must be set too: give the folder of the lines"
            )


class Tables(Section):
    """The paper's tables from this data."""

    truth_min_px: int = key(
        64,
        "Number of a known lesion's pixels from which a zone truly contains it (embedded cohort).",
        unit="pixels",
        ge=1,
    )


class Ablation(Section):
    """Recall and yield of every threshold set and grid point."""

    interval: float = key(0.95, "Coverage of the confidence interval of a recall.", gt=0, lt=1)


class Figures(Section):
    """Figures of the results."""

    studies: int = key(12, "Number of studies that get an overlay panel.", ge=0, le=1000)
    dpi: int = key(110, "Resolution of the figures.", unit="dots per inch", ge=40, le=600)
    quality: int = key(85, "JPEG quality of panels, sheets and the page's images.", ge=30, le=95)


class Page(Section):
    """The results on one page, with images."""

    gallery: int = key(3, "Number of findings per lesion type that the page shows with their boxes.", ge=0, le=50)
    boxes: int = key(8, "Boxes shown per finding; half of them are kept boxes, if there are that many.", ge=1, le=40)
    calibration: int = key(6, "Number of images whose masks are shown for every built threshold set.", ge=0, le=100)
    side: int = key(384, "Side of the page's images.", unit="pixels", ge=128, le=1024)
