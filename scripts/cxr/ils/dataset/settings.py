"""Settings of the dataset stage."""

from typing import Literal

from cxr.base.lesions import LESION_TYPES
from cxr.base.settings import AUTHORS, PAPER, Share, constraint, key
from cxr.base.vocabulary import LUNG_LESIONS
from cxr.ils.settings import ReportLogic


class PairSettings(ReportLogic):
    """Settings that affect the pairs."""

    ctr_negative_max: float = key(
        0.45, "Maximum cardiothoracic ratio at which a pair may deny cardiomegaly.", source=PAPER, ge=0, le=1
    )
    denials: Literal["explicit", "witnessed", "all"] = key(
        "witnessed",
        "Evidence for a negative pair. explicit: a denial that a second reader of the report confirms; witnessed: "
        "that, or no sign of the lesion type in report and image; all: no second reader, as in the paper.",
    )
    unknown_words_max: Share = key(
        0.05,
        "Maximum fraction of unknown words (among the distinct words of sentences with possible findings) in a "
        "section whose silence about a lesion type may give a negative pair (engine rules).",
    )
    global_share: dict[Literal[LUNG_LESIONS], Share] = key(
        lambda: {lesion.name: lesion.global_share for lesion in LESION_TYPES if lesion.global_share is not None},
        "Target fraction of global pairs (without a location) among the negatives of a lesion type (Table 10).",
        source=PAPER,
    )
    opacity_inference_share: Share = key(
        0.5, "Target fraction of lesion inferences among opacity's local negatives (Table 10: 72,269 of 145,888)."
    )


class DatasetSettings(PairSettings):
    """Instruction-answer pairs."""

    mimic_ils_layout: bool = key(False, "Whether to write the layout of the authors' release too (JSON and PNG masks).")
    mimic_ils: str = key(
        "", "Folder of the authors' release, or of a dataset in its layout. It becomes the threshold set `mimic_ils`."
    )
    mimic_ils_images: str = key(
        "", "Image folder of `mimic_ils` (pNN/p<subject>/s<study>/<image>.jpg): 8-bit JPEG or PNG.", source=AUTHORS
    )
    layout_pixels: Literal["frame", "original"] = key(
        "frame", "Pixel grid of mimic_ils_layout's masks: the frame, as in the release, or the image.", source=AUTHORS
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
