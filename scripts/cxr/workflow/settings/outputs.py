"""Settings of the tables, figures and the page."""

from cxr.base.settings import Section, key


class Tables(Section):
    """The paper's tables from this data."""

    truth_min_px: int = key(
        64,
        "Number of a known lesion's pixels from which a zone truly contains it (embedded cohort).",
        unit="pixels",
        ge=1,
    )


class Ablation(Section):
    """Recall and yield of every threshold set and grid point."""

    interval: float = key(0.95, "Coverage of the confidence interval of a recall.", gt=0, lt=1)


class Figures(Section):
    """Figures of the results."""

    studies: int = key(12, "Number of studies that get an overlay panel.", ge=0, le=1000)
    dpi: int = key(110, "Resolution of the figures.", unit="dots per inch", ge=40, le=600)
    quality: int = key(85, "JPEG quality of panels, sheets and the page's images.", ge=30, le=95)


class Page(Section):
    """The results on one page, with images."""

    gallery: int = key(3, "Number of findings per lesion type that the page shows with their boxes.", ge=0, le=50)
    boxes: int = key(8, "Boxes shown per finding; half of them are kept boxes, if there are that many.", ge=1, le=40)
    calibration: int = key(6, "Number of images whose masks are shown for every built threshold set.", ge=0, le=100)
    side: int = key(384, "Side of the page's images.", unit="pixels", ge=128, le=1024)
