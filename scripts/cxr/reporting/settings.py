"""Settings of the reporting wing: figures, page, privacy, agreement, review and release."""

import datetime
from typing import Annotated, Literal

from cxr.annotations.formats import FORMATS, describe_formats
from cxr.base.settings import PAPER, Check, Expert, Limits, Section, constraint, key, refuse_equal_names
from cxr.base.vocabulary import LESIONS

JPEG_QUALITY = 85
"""JPEG quality, %, of panels, sheets and the page's images."""


class FiguresSettings(Section):
    """Figures of the results."""

    studies: int = key(12, "Number of studies that get an overlay panel.", ge=0, le=1000)
    dpi: int = key(110, "Resolution of the figures.", unit="dots per inch", ge=40, le=600)


class PageSettings(Section):
    """The results on one page, with images."""

    gallery: int = key(
        3,
        "Number of findings per lesion type that the page shows with their boxes; twice as many images are shown with "
        "the masks of every built threshold set.",
        ge=0,
        le=50,
    )


class PrivacySettings(Section):
    """What identifies a person is removed from texts and images (docs/how-to/privacy.md)."""

    texts: Literal["scrub", "keep"] = key(
        "scrub",
        "Report texts. scrub: names, addresses, dates, telephone and record numbers become surrogates of the same "
        "form, signatures and markup are removed; keep: as they are, for texts that their publisher has de-identified.",
    )
    burned_in: Literal["black_out", "exclude", "keep"] = key(
        "black_out",
        "Text that is burned into images, found by reading them (0.6 s an image on one core). black_out: its boxes "
        "become black, until no text is left; exclude: such images are excluded; keep: images are not read, as their "
        "publisher has de-identified. Markers (L, AP, ERECT) stay. The embedded cohort is not read.",
    )
    least_subjects: int = key(
        5,
        "Where report_text is withheld (release.withhold), pages and tables list an unknown word only if reports of "
        "this many subjects have it.",
        unit="subjects",
        ge=1,
    )


ReferenceName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class ReferenceSettings(Section):
    """A file of human annotations: boxes or masks."""

    format: Literal[FORMATS] = key("coco", f"{describe_formats()}.")
    path: str = key("", "Path of the file; for mimic_ils, of the folder.")
    classes: dict[str, Literal[LESIONS]] = key(
        dict, "{label: lesion type}, which takes precedence over the format's own table (docs/how-to/agreement.md)."
    )
    image_id: str = key(
        "{stem}",
        "The cohort's image_id of an image: {name} is the name in the file, {stem} the name without extension.",
    )


class AgreementSettings(Section):
    """Masks, anomaly maps and boxes against human annotations."""

    references: dict[ReferenceName, ReferenceSettings] = key(
        dict, "References by name. Empty: the truth of the embedded cohort, if that is the source."
    )

    @constraint
    def _names_are_distinct(self) -> None:
        refuse_equal_names("the references", self.references)


class ReviewSettings(Section):
    """Experts judge units: distinct (mask, target, location) of a split; of negatives the mask is empty. Or queries."""

    items: Literal["pairs", "queries"] = key(
        "pairs",
        "What experts judge. pairs: masks of ILS; queries: those of MedGround's test split, all by every expert.",
    )
    rule: Literal["all", "majority"] = key(
        "all", "Who must find a query good: all experts, or more than half of them. Pairs need all.", source=PAPER
    )

    experts: list[Expert] = key(
        lambda: ["A", "B", "C", "D"],
        "Names of the experts, used in file names; each gets a page.",
        source=PAPER,
        min_length=1,
    )
    thresholds: str = key("", "Threshold set whose dataset is reviewed; empty: the first in thresholds.build.")
    split: Literal["train", "validate", "test"] = key("test", "Split that is reviewed.", source=PAPER)
    positives: int = key(
        0,
        "Number of sampled units with a mask, or of queries, each judged by all experts; 0 for all.",
        unit="units",
        ge=0,
    )
    negatives: int = key(
        0, "Number of sampled units without a mask, divided among the experts; 0 for all.", unit="units", ge=0
    )
    jpeg_quality: int = key(
        0,
        "JPEG quality of the pages' images (90: a third of PNG's size); 0: lossless PNG.",
        ge=0,
        le=100,
    )
    sheets: list[str] = key(list, "The experts' completed sheets (CSV), or folders of them, for `review_merge`.")
    unsampled: Literal["drop", "keep"] = key("drop", "Whether the filtered split keeps pairs that no expert judged.")

    @constraint
    def _experts_are_distinct(self) -> None:
        if (self.items, self.rule) == ("pairs", "majority"):
            raise ValueError("rule is 'majority', but a pair stands only if no expert rejects it: set items to queries")
        names = [name.casefold() for name in self.experts]
        if twice := [name for name in self.experts if names.count(name.casefold()) > 1]:
            raise ValueError(f"experts names {twice[0]!r} more than once (case is ignored): rename one")


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
        "Data excluded from the release: pixels (images), report_text (section_content), ids (replaced by keyed "
        "digests; no DICOM segmentations). true: all three; false or []: none. The default suits MIMIC-CXR "
        "(docs/how-to/load.md).",
    )
    coco_pixels: Literal["frame", "original"] = key(
        "frame", "Pixel grid of COCO's masks: the frame's, as everywhere except in DICOM, or the image's own."
    )

    def kinds(self) -> list[str]:
        """Return what is withheld, in a fixed order."""
        return [kind for kind in WITHHELD if kind in self.withhold]


class ReleaseSettings(PackageSettings):
    """A dataset version as a package (`snakemake release`, docs/how-to/load.md)."""

    salt: str = key(
        "", "File of the secret key for the digests of ids, 16 bytes or more; required if ids are withheld."
    )
    test: str = key(
        "",
        "JSONL of the test pairs to keep, such as the filtered split of `review_merge`; {thresholds} stands for the "
        "set's name. Empty: all.",
    )
    mixes: list[str] = key(
        list,
        "Mixes of radvlm.instructions that are packaged too, each as `results/release/instructions/{mix}`; with "
        "report_text withheld, the tasks that quote reports are excluded.",
    )

    @constraint
    def _ids_have_a_key(self) -> None:
        if "ids" in self.kinds() and not self.salt:
            raise ValueError("withhold names ids, so release.salt must name a key file: make one of 16 bytes")
        if self.salt and "ids" not in self.kinds():
            raise ValueError("salt is given, but withhold does not name ids, so they stay: name ids, or leave salt out")
