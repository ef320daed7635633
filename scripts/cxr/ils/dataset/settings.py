"""Settings of the dataset stage."""

from typing import Literal

from cxr.base.lesions import LESION_TYPES
from cxr.base.settings import AUTHORS, PAPER, Share, constraint, key
from cxr.base.vocabulary import LUNG_LESIONS
from cxr.ils.settings import ReportLogic


class PairSettings(ReportLogic):
    """Settings that affect the instruction-answer pairs."""

    ctr_negative_max: float = key(
        0.45, "Maximum cardiothoracic ratio of an image whose pairs may deny cardiomegaly.", source=PAPER, ge=0, le=1
    )
    denials: Literal["explicit", "witnessed", "all"] = key(
        "witnessed",
        "Evidence that a negative pair needs. explicit: the report denies the lesion type, and a second check of its "
        "text confirms this; witnessed: as explicit, or the report does not mention the type and the image shows no "
        "sign of a lesion at the location; all: only the paper's rules, without the second check and the image.",
    )
    unknown_words_max: Share = key(
        0.05,
        "Maximum fraction of unknown words in a report section. If it has more, lesion types that it does not mention "
        "are not denied. The engine `rules` counts only distinct words in sentences with possible findings.",
    )
    global_share: dict[Literal[LUNG_LESIONS], Share] = key(
        lambda: {lesion.name: lesion.global_share for lesion in LESION_TYPES if lesion.global_share is not None},
        "Target fraction of global pairs, which name no location, among the negative pairs of each type (Table 10).",
        source=PAPER,
    )
    opacity_inference_share: Share = key(
        0.5,
        "Of the negative pairs of opacity that name a location, the target fraction that also asks for the type of the "
        "opacity (lesion inference). In Table 10 it is 72,269 / 145,888.",
    )


class DatasetSettings(PairSettings):
    """Settings of the dataset of instruction-answer pairs."""

    mimic_ils_layout: bool = key(False, "Whether to write the dataset in the authors' layout too (JSON and PNG masks).")
    mimic_ils: str = key(
        "", "Folder of the authors' release, or of a dataset in its layout, to use as the threshold set `mimic_ils`."
    )
    mimic_ils_images: str = key(
        "", "Folder of the release's 8-bit images, pNN/p<subject>/s<study>/<image>.jpg.", source=AUTHORS
    )
    layout_pixels: Literal["frame", "original"] = key(
        "frame",
        "Size of the masks in the authors' layout. frame: 512 x 512, as in the release; original: as the image file.",
        source=AUTHORS,
    )

    @constraint
    def _mimic_ils_has_images(self) -> None:
        if self.mimic_ils and not self.mimic_ils_images:
            raise ValueError("mimic_ils is set, but dataset.mimic_ils_images is empty: give the folder of its images")
        if self.mimic_ils_images and not self.mimic_ils:
            raise ValueError("mimic_ils_images is set, but dataset.mimic_ils is empty: give the folder of the release")
