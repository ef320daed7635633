"""Settings of the package of a dataset version."""

import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cxr.workflow.settings.base import Section, key

WITHHELD = ("pixels", "report_text", "ids")


def _all_or_nothing(value: object) -> object:
    """Return the list that ``true`` or ``false`` stands for; a union of types would tell a fault twice."""
    return (list(WITHHELD) if value else []) if isinstance(value, bool) else value


def _three_numbers(value: str) -> str:
    return value + ".0" * (2 - value.count("."))


def _day(value: str) -> str:
    try:
        return datetime.datetime.strptime(value, "%Y-%m-%d").date().isoformat()
    except ValueError:
        raise ValueError(f"{value!r} is no day of the calendar: give one as 2026-01-31") from None


Version = Annotated[str, Field(pattern=r"^\d+(\.\d+){0,2}$"), AfterValidator(_three_numbers)]
Date = Annotated[str, AfterValidator(_day)]


class Release(Section):
    """A dataset version as a package (`snakemake release`, docs/how-to/load.md)."""

    name: str = key("cxr-ils", "Name of the dataset.", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    version: Version = key("1.0.0", "Its version, of three numbers; 1.0 is 1.0.0.")
    date: Date = key("2000-01-01", "Its date, year-month-day; no clock is read.")
    licence: str = key("not stated", "Terms under which it is passed on: a name, or an address.", min_length=1)
    creator: str = key("", "Its creator; empty: not stated.")
    cite: str = key("", "How to cite it; empty: its name and version.")
    url: str = key("", "Its address; empty: not stated.")
    withhold: Annotated[
        list[Literal[WITHHELD]],
        BeforeValidator(_all_or_nothing, json_schema_input_type=bool | list[Literal[WITHHELD]]),
    ] = key(
        lambda: ["pixels", "report_text"],
        "What is left out: pixels (images), report_text (section_content), ids (replaced by keyed digests; no DICOM "
        "segmentations). true: all three; false or []: nothing. The default fits MIMIC-CXR (docs/how-to/load.md).",
    )
    salt: str = key("", "File of the secret key of these digests, 16 bytes or more. Required with ids.")
    test: str = key(
        "",
        "JSONL of the pairs of the test split that stay, {thresholds} is the set's name: the filtered split of "
        "`review_merge`; empty: all.",
    )
    pairs_per_file: int = key(20_000, "Pairs in a Parquet file.", unit="pairs", ge=1, le=1_000_000)
    images_per_file: int = key(1_000, "Images in a Parquet file.", unit="images", ge=1, le=1_000_000)
    coco_pixels: Literal["frame", "original"] = key(
        "frame", "Pixels of COCO's masks: the frame's, as in all else but DICOM, or the image's own."
    )

    @model_validator(mode="after")
    def _ids_have_a_key(self) -> "Release":
        if "ids" in self.kinds() and not self.salt:
            raise ValueError("withhold names ids, so release.salt must name the file of a key: make one of 16 bytes")
        if self.salt and "ids" not in self.kinds():
            raise ValueError("salt is given, but withhold does not name ids, so they stay: name ids, or leave salt out")
        return self

    def kinds(self) -> list[str]:
        """Return what is withheld, in a fixed order."""
        return [kind for kind in WITHHELD if kind in self.withhold]
