"""Settings of the references: people's boxes that priors are fitted on, and detectors trained and scored."""

from typing import Annotated, Literal

from cxr.annotations.formats import FORMATS, describe_formats
from cxr.base.settings import Limits, Section, key
from cxr.workflow.settings.semisyn.names import FindingName

ReferenceName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class Reference(Section):
    """A file of people's boxes."""

    format: Literal[FORMATS] = key("coco", f"{describe_formats()}.")
    path: str = key("", "Path of the file; for mimic_ils, of the folder.")
    role: Literal["train", "val", "test"] = key(
        "test", "What it is used for. No patient may be in references of two roles."
    )
    classes: dict[str, FindingName] = key(
        dict,
        "{label: finding}, before the format's own labels and the names of the findings. Boxes of other labels are "
        "left out and counted.",
    )
    image_id: str = key(
        "{stem}", "image_id of an image: {name} is the name in the file, {stem} the name without extension."
    )
    patients: str = key(
        "",
        "CSV or Parquet with image_id and subject_id, of images that are not the cohort's; without: one patient each.",
    )
    images: str = key(
        "",
        "Its pictures where they are not the cohort's, for detectors and for priors fitted on it: a folder, or a CSV "
        "with image_id, image_path and perhaps subject_id, view and position (a fit measures hearts on films that are "
        "told to be PA, and not told to be other than erect).",
    )
