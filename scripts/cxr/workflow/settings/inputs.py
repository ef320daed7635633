"""Settings of the cohort and the frames."""

from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Check, Percent, Section, Share, constraint, key

EMBEDDED_SHARDS, DEFAULT_SHARDS = 3, 64
Code = Annotated[str, Check(lambda text: text.strip().upper())]
"""A coded value of a DICOM header, in capitals."""


class SplitShares(Section):
    """Fractions of the splits for subjects without a given split."""

    train: float | None = key(
        None,
        "Percentage of subjects in the training split. null, for all three: 80, 10 and 10 below 2,000 subjects, 98, 1 "
        "and 1 from there on. A split gets at least one subject where there are enough. Give the three numbers for a "
        "cohort that may grow past 2,000 subjects: then its splits stay.",
        unit="%",
        ge=0,
        le=100,
    )
    validate: float | None = key(
        None, "Percentage of subjects in the validation split; see train.", unit="%", ge=0, le=100
    )
    test: float | None = key(None, "Percentage of subjects in the test split; see train.", unit="%", ge=0, le=100)

    def shares(self) -> list[float]:
        """Return the percentages of train, validate and test; none where the size of the cohort decides."""
        return [] if self.train is None else [self.train, self.validate, self.test]

    @constraint
    def _adds_up(self) -> None:
        percentages = {"train": self.train, "validate": self.validate, "test": self.test}
        missing = [name for name, percentage in percentages.items() if percentage is None]
        if len(missing) == len(percentages):
            return
        if missing:
            raise ValueError(f"{' and '.join(missing)} must be given too: train, validate and test add up to 100")
        if abs(sum(percentages.values()) - 100) > 1e-9:
            raise ValueError("train, validate and test must add up to 100")


class Cohort(Section):
    """Which images and reports go in."""

    source: Literal["embedded", "manifest", "mimic", "openi"] = key(
        "embedded",
        "embedded: the synthetic cohort made by the project; manifest: a CSV file; mimic: a MIMIC-CXR tree; openi: the "
        "Indiana University collection (docs/getting-started/openi.md).",
    )
    root: str = key(
        "",
        "Folder of the MIMIC-CXR tree, the one that holds files/ (source mimic), or of the unpacked archives of Open-i "
        "(source openi).",
    )
    tables: str = key(
        "",
        "Folder of the official *-record-list, *-metadata and *-split tables (source mimic), or of the tables that "
        "tell which images are frontal (source openi). Tables that it lacks are looked for in root.",
    )
    manifest: str = key(
        "",
        "CSV with subject_id, study_id, image_id, image_path and report_path or findings/impression (source manifest).",
    )
    shards: int | None = key(
        None,
        f"Number of shards; null: {EMBEDDED_SHARDS} for the embedded cohort, else {DEFAULT_SHARDS}. "
        "A change re-runs everything.",
        ge=1,
        le=4096,
    )
    views: list[Literal["PA", "AP"]] = key(
        lambda: ["PA", "AP"], "Accepted frontal views, the preferred one first.", source=PAPER, min_length=1
    )
    unknown_view: Literal["exclude", "accept"] = key(
        "exclude", "What to do with an image whose view is in neither a table nor its header."
    )
    shared_images: Literal["accept", "exclude"] = key(
        "accept",
        "What to do with an image file that several studies name. accept: keep it, with a warning (for example a "
        "placeholder image for studies that have only a report); exclude: exclude all its rows, because the right "
        "study is unknown.",
    )
    modalities: list[Code] = key(
        lambda: ["CR", "DX", "RG"], "DICOM modalities that are radiographs; others are excluded as wrong_modality."
    )
    body_parts: list[Code] = key(
        lambda: [
            "CHEST",
            "THORAX",
            "TORAX",
            "TORACE",
            "TORAKS",
            "RIBCAGE",
            "RIB",
            "RIBS",
            "LUNG",
            "LUNGS",
            "LUNGE",
            "PULMON",
            "PULMAO",
            "POUMON",
            "HEART",
            "CXR",
        ],
        "Accepted words in BodyPartExamined; one of five or more letters may be part of a word (PORTABLECHEST). An "
        "empty or unknown body part is accepted, others are excluded as wrong_body_part.",
    )
    min_side: int = key(128, "Smallest accepted side of an image, else too_small.", unit="pixels", ge=16, le=4096)
    per_study: Literal["first", "all"] = key(
        "first", "first: the best decodable image of a study; all: every frontal one.", source=AUTHORS
    )
    exclude: str = key(
        "", "Text or CSV file of image or study ids to exclude (the authors exclude those of MS-CXR).", source=AUTHORS
    )
    chexstruct: str = key(
        "", "Folder of CheXStruct quality tables; images that fail one are excluded (paper D.1).", source=PAPER
    )
    chexstruct_tables: list[Literal["mask_number", "abdominal_xray", "window", "inclusion"]] = key(
        lambda: ["mask_number", "abdominal_xray", "window", "inclusion"],
        "CheXStruct tables that an image must pass (the paper names the first kind and full visibility).",
    )
    split: SplitShares = key(SplitShares, "Sizes of the splits for subjects without a given split.")

    @constraint
    def _has_its_source(self) -> None:
        for sources, name in ((("manifest",), "manifest"), (("mimic", "openi"), "root")):
            if self.source in sources and not getattr(self, name):
                raise ValueError(f"source is {self.source!r}, so cohort.{name} must be set")
            if self.source not in sources and getattr(self, name):
                choices = " or ".join(sources)
                raise ValueError(f"{name} is given, but source is {self.source!r}: set cohort.source to {choices}")


class Phantom(Section):
    """The embedded cohort: synthetic X-rays and reports whose truth is known."""

    subjects: int = key(48, "Number of synthetic patients.", ge=6, le=100_000)
    studies: int = key(72, "Number of synthetic studies.", ge=6, le=100_000)
    healthy: int = key(
        0, "Number of further patients with one PA study without a finding, for semisyn.", ge=0, le=100_000
    )

    @constraint
    def _every_subject_has_a_study(self) -> None:
        if self.studies < self.subjects:
            raise ValueError(f"studies is {self.studies}, but each of the {self.subjects} subjects needs one: raise it")


class Frames(Section):
    """From files to 8-bit frames of 512 x 512."""

    size: Literal[512] = key(512, "Side of the canonical frame.", source=AUTHORS, unit="pixels")
    fit: Literal["pad", "stretch", "crop"] = key("pad", "How an image that is not square is fitted to the frame.")
    window: Literal["minmax", "voi", "percentile"] = key(
        "minmax", "Grey range: all pixels, the header's VOI window, or the percentiles below."
    )
    percentiles: tuple[Percent, Percent] = key((0.5, 99.5), "Range kept by window: percentile.", unit="%")
    max_pixels: int = key(100_000_000, "Larger images are refused before decoding.", unit="pixels", ge=1)
    spike_share: Share = key(
        0.001, "A warning is logged if fewer than this fraction of the pixels hold spike_range of the grey range."
    )
    spike_range: Share = key(0.5, "Fraction of the grey range meant by spike_share (markers, metal).")
    max_memory_mb: int = key(
        4096, "Memory limit of one decoding process; an image that needs more is undecodable.", unit="MB", ge=1024
    )
    timeout_s: int = key(
        300, "Time limit of decoding one image; an image that takes longer is undecodable.", unit="s", ge=10
    )

    @constraint
    def _percentiles_rise(self) -> None:
        low, high = self.percentiles
        if low >= high:
            raise ValueError(f"percentiles is [{low}, {high}]: give the lower one first")
