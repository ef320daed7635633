"""Settings of the agreement with human annotations."""

from typing import Annotated, Literal

from cxr.annotations.formats import FORMATS, describe_formats
from cxr.base.settings import Limits, Section, constraint, key, refuse_equal_names
from cxr.base.vocabulary import LESIONS

ReferenceName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class ReferenceSettings(Section):
    """A file of human annotations: boxes or masks."""

    format: Literal[FORMATS] = key("coco", f"Format of the file. {describe_formats()}.")
    path: str = key("", "Path of the file or folder.")
    classes: dict[str, Literal[LESIONS]] = key(
        dict, "{label: lesion type}, which overrides the format's own table (docs/how-to/agreement.md)."
    )
    image_id: str = key(
        "{stem}",
        "Template of the cohort's image_id: {name} is the image's name in the file, {stem} the name without extension.",
    )


class AgreementSettings(Section):
    """Masks, anomaly maps and boxes against human annotations."""

    references: dict[ReferenceName, ReferenceSettings] = key(
        dict, "References by name. Empty: the embedded cohort's ground truth, if cohort.source is embedded."
    )

    @constraint
    def _names_are_distinct(self) -> None:
        refuse_equal_names("the references", self.references)
