"""Settings of released packages."""

import datetime
from typing import Annotated, Literal

from cxr.base.settings import Check, Limits, Section, constraint, key

WITHHELD = ("pixels", "report_text", "ids")


def _all_or_nothing(value: object) -> object:
    """Return ``true`` as a list of all kinds, ``false`` as an empty list, and any other value unchanged."""
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
    """Content and description of a package."""

    name: str = key("cxr-ils", "Name of the dataset.", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    version: Version = key("1.0.0", "Version of the dataset: one to three numbers. 1.0 becomes 1.0.0.")
    date: Date = key("2000-01-01", "Publication date, as year-month-day. The package states it, never today's date.")
    licence: str = key("not stated", "Name or address of the dataset's licence.", min_length=1)
    creator: str = key("", 'Creator of the dataset. If empty, the package says "not stated".')
    cite: str = key("", "Citation of the dataset. If empty, its name and version are the citation.")
    url: str = key("", "Web address of the dataset. If empty, the package states none.")
    withhold: Annotated[list[Literal[WITHHELD]], Check(_all_or_nothing, before=True)] = key(
        lambda: ["pixels", "report_text"],
        "Data that the package omits. pixels: images. report_text: words of reports. ids: identifiers, which are "
        "replaced by keyed digests, and DICOM segmentations. true omits all three, false or [] omits nothing. The "
        "default suits MIMIC-CXR (docs/how-to/load.md).",
    )
    coco_pixels: Literal["frame", "original"] = key(
        "frame", "Pixel grid of the COCO masks. frame: 512 × 512, as all masks. original: that of the original image."
    )

    def kinds(self) -> list[str]:
        """Return the kinds of withheld data in a fixed order."""
        return [kind for kind in WITHHELD if kind in self.withhold]


class ReleaseSettings(PackageSettings):
    """A version of the dataset as a package (`snakemake release`, docs/how-to/load.md)."""

    salt: str = key("", "File with the secret key (16 bytes or more) for digests of ids; needed if ids are withheld.")
    test: str = key(
        "",
        "JSONL file of the test pairs to keep, such as the filtered split of `review_merge`. {thresholds} stands for "
        "the threshold set. If empty, all test pairs are kept.",
    )
    mixes: list[str] = key(
        list,
        "Mixes of radvlm.instructions that are packaged too, in `results/release/instructions/{mix}`. If report_text "
        "is withheld, tasks that quote reports are excluded.",
    )

    @constraint
    def _ids_have_a_key(self) -> None:
        if "ids" in self.kinds() and not self.salt:
            raise ValueError("withhold names ids, so release.salt must name a key file: make one of 16 or more bytes")
        if self.salt and "ids" not in self.kinds():
            raise ValueError("salt is given, but ids are published unchanged: add 'ids' to withhold, or remove it")
