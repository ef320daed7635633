"""Settings of figures, of the page, and of privacy."""

from typing import Literal

from cxr.base.settings import Section, key

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
        "become black, until no text is left; exclude: such images are excluded; keep: images are not read. Markers "
        "(L, AP, ERECT) stay. The embedded cohort is not read.",
    )
    least_subjects: int = key(
        5,
        "Where report_text is withheld (release.withhold), pages and tables list an unknown word only if reports of "
        "this many subjects have it.",
        unit="subjects",
        ge=1,
    )
