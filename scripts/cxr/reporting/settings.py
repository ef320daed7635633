"""Settings of figures, of the page, and of privacy."""

from typing import Literal

from cxr.base.settings import Section, key

JPEG_QUALITY = 85
"""JPEG quality, %, of panels, sheets and the page's images."""


class FiguresSettings(Section):
    """Figures of the results."""

    studies: int = key(12, "Number of studies with an overlay panel.", ge=0, le=1000)
    dpi: int = key(110, "Resolution of the figures.", unit="dots per inch", ge=40, le=600)


class PageSettings(Section):
    """The results on one page, with images."""

    gallery: int = key(
        3,
        "Number of findings per lesion type that the page shows with their boxes. It shows twice as many images "
        "with the masks of every built threshold set.",
        ge=0,
        le=50,
    )


class PrivacySettings(Section):
    """Removal of personal data from texts and images (docs/how-to/privacy.md)."""

    texts: Literal["scrub", "keep"] = key(
        "scrub",
        "Report texts. scrub: names, addresses, dates, telephone and record numbers become surrogates of the same "
        "form, and signatures and markup are removed; keep: texts stay unchanged (only for de-identified texts).",
    )
    burned_in: Literal["black_out", "exclude", "keep"] = key(
        "black_out",
        "Text burned into images. black_out: it is blackened; exclude: the image is excluded; keep: images are "
        "not searched (a search takes 0.6 s per image and core). Markers (L, AP, ERECT) stay; the embedded cohort "
        "is not searched.",
    )
    least_subjects: int = key(
        5,
        "Minimum number of subjects whose reports have an unknown word before pages and tables list it, if "
        "release.withhold names report_text.",
        unit="subjects",
        ge=1,
    )
