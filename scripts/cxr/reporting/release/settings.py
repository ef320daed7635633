"""Settings of packages."""

import datetime
from typing import Annotated, Literal

from cxr.base.settings import Check, Limits, Section, constraint, key

WITHHELD = ("pixels", "report_text", "ids")


def _all_or_nothing(value: object) -> object:
    """Return the list that ``true`` or ``false`` stands for; a union of types would report a fault twice."""
    return (list(WITHHELD) if value else []) if isinstance(value, bool) else value


def _three_numbers(value: str) -> str:
    return value + ".0" * (2 - value.count("."))


def _day(value: str) -> str:
    try:
        return datetime.datetime.strptime(value, "%Y-%m-%d").date().isoformat()
    except ValueError:
        raise ValueError(f"{value!r} is not a calendar date: give one such as 2026-01-31") from None


Version = Annotated[str, Limits(pattern=r"^\d+(\.\d+){0,2}$"), Check(_three_numbers)]
Date = Annotated[str, Check(_day)]


class PackageSettings(Section):
    """What a package contains and how it is described."""

    name: str = key("cxr-ils", "Name of the dataset.", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    version: Version = key("1.0.0", "Version of the dataset, three numbers; 1.0 becomes 1.0.0.")
    date: Date = key("2000-01-01", "Date of the dataset, year-month-day; the clock is not read.")
    licence: str = key("not stated", "Licence of the dataset: its name or address.", min_length=1)
    creator: str = key("", "Creator of the dataset; empty: not stated.")
    cite: str = key("", "Citation of the dataset; empty: its name and version.")
    url: str = key("", "Address of the dataset; empty: not stated.")
    withhold: Annotated[list[Literal[WITHHELD]], Check(_all_or_nothing, before=True)] = key(
        lambda: ["pixels", "report_text"],
        "What the release leaves out: pixels, report_text, ids (replaced by keyed digests; no DICOM "
        "segmentations). true: all three; false or []: nothing. The default suits MIMIC-CXR "
        "(docs/how-to/load.md).",
    )
    coco_pixels: Literal["frame", "original"] = key(
        "frame", "Pixel grid of COCO's masks: the frame's, or the image's own as in DICOM."
    )

    def kinds(self) -> list[str]:
        """Return what is withheld, in a fixed order."""
        return [kind for kind in WITHHELD if kind in self.withhold]


class ReleaseSettings(PackageSettings):
    """A dataset version as a package (`snakemake release`, docs/how-to/load.md)."""

    salt: str = key("", "File of the secret key for digests of ids, 16 bytes or more; required if ids are withheld.")
    test: str = key(
        "",
        "JSONL of the test pairs to keep, such as the filtered split of `review_merge`; {thresholds} stands for "
        "the set. Empty: all.",
    )
    mixes: list[str] = key(
        list,
        "Mixes of radvlm.instructions that are packaged too, as `results/release/instructions/{mix}`; with "
        "report_text withheld, without the tasks that quote reports.",
    )

    @constraint
    def _ids_have_a_key(self) -> None:
        if "ids" in self.kinds() and not self.salt:
            raise ValueError("withhold names ids, so release.salt must name a key file: make one of 16 bytes")
        if self.salt and "ids" not in self.kinds():
            raise ValueError("salt is given, but withhold does not name ids, so they stay: name ids, or leave salt out")
