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
        "Number of findings per lesion type shown with their boxes; twice as many images are shown with the masks"
        " of every built threshold set.",
        ge=0,
        le=50,
    )


class PrivacySettings(Section):
    """What identifies a person is removed from texts and images (docs/how-to/privacy.md)."""

    texts: Literal["scrub", "keep"] = key(
        "scrub",
        "Report texts. scrub: names, addresses, dates, telephone and record numbers become surrogates of the same"
        " form, signatures and markup are removed; keep: unchanged, for texts that are de-identified already.",
    )
    burned_in: Literal["black_out", "exclude", "keep"] = key(
        "black_out",
        "Text in the pixels of images. black_out: it becomes black; exclude: the image is excluded; keep: images "
        "are not searched (searching takes 0.6 s an image and core). Markers (L, AP, ERECT) stay; the embedded "
        "cohort is not searched.",
    )
    least_subjects: int = key(
        5,
        "Number of subjects whose reports must have an unknown word before pages and tables list it, where "
        "release.withhold names report_text.",
        unit="subjects",
        ge=1,
    )
