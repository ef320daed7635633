"""Settings of figures, of the page, and of privacy."""

from typing import Literal

from cxr.base.settings import Section, key

JPEG_QUALITY = 85
"""JPEG quality (0 to 100) of panels, sheets and the images of the page."""


class FiguresSettings(Section):
    """Figures of the results."""

    studies: int = key(
        12, "Number of images for which a panel with maps, boxes, masks and pairs is drawn.", ge=0, le=1000
    )
    dpi: int = key(110, "Resolution of panels and charts.", unit="dots per inch", ge=40, le=600)


class PageSettings(Section):
    """The results on one page, with images."""

    gallery: int = key(
        3,
        "Number of findings per lesion type and threshold set that the page shows with their boxes. The page also "
        "compares the masks of all threshold sets on twice this number of images.",
        ge=0,
        le=50,
    )


class PrivacySettings(Section):
    """Removal of personal data from texts and images (docs/how-to/privacy.md)."""

    texts: Literal["scrub", "keep"] = key(
        "scrub",
        "Treatment of report texts. scrub: names, addresses, dates, telephone and record numbers are replaced by "
        "invented ones of the same form, and signatures and markup are removed. keep: texts stay unchanged; use it "
        "only for de-identified texts.",
    )
    burned_in: Literal["black_out", "exclude", "keep"] = key(
        "black_out",
        "Treatment of text burned into images. black_out: the text is blackened. exclude: the image is excluded. "
        "keep: images are not searched for text, which saves 0.6 s per image and core. Markers such as L, AP or ERECT "
        "always stay. The project's synthetic cohort is never searched.",
    )
    least_subjects: int = key(
        5,
        "Words that the rules do not know are listed on pages and in tables if reports of at least this many subjects "
        "contain them. A higher value hides more words. If release.withhold lacks report_text, all words are listed.",
        unit="subjects",
        ge=1,
    )
