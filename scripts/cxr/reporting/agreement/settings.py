"""Settings of the agreement with human annotations (``snakemake agreement``)."""

from typing import Annotated, Literal

from cxr.annotations.formats import FORMATS, describe_formats
from cxr.base.settings import Limits, Section, constraint, key, refuse_equal_names
from cxr.base.vocabulary import LESIONS

ReferenceName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class ReferenceSettings(Section):
    """A reference: a file of human annotations, which are boxes or masks."""

    format: Literal[FORMATS] = key("coco", f"Format of the file. {describe_formats()}.")
    path: str = key("", "Path of the annotation file, or of its folder if the format has several files.")
    classes: dict[str, Literal[LESIONS]] = key(
        dict,
        "Lesion types of the file's labels, {label: lesion type}. Other labels keep the mapping of the format "
        "(docs/how-to/agreement.md).",
    )
    image_id: str = key(
        "{stem}",
        "Template that gives the cohort's image_id of an annotated image. {name} stands for the image's name in the "
        "file, {stem} for that name without folder and extension.",
    )


class AgreementSettings(Section):
    """The comparison of masks, anomaly maps and boxes with human annotations."""

    references: dict[ReferenceName, ReferenceSettings] = key(
        dict,
        "Files of human annotations, each under a name of your choice. If empty and cohort.source is `embedded`, the "
        "ground truth of this synthetic cohort is used.",
    )

    @constraint
    def _names_are_distinct(self) -> None:
        refuse_equal_names("the references", self.references)
