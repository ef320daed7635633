"""Settings of the cohort stage."""

from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Check, Percent, Section, constraint, key
from cxr.base.vocabulary import SPLITS

EMBEDDED_SHARDS, DEFAULT_SHARDS = 3, 64
BODY_PARTS = (
    "CHEST", "THORAX", "TORAX", "TORACE", "TORAKS", "RIBCAGE", "RIB", "RIBS", "LUNG", "LUNGS", "LUNGE", "PULMON",
    "PULMAO", "POUMON", "HEART", "CXR",
)  # fmt: skip
Code = Annotated[str, Check(lambda text: text.strip().upper())]  # a coded value of a DICOM header, in capitals


class CohortSettings(Section):
    """Which images and reports go in."""

    source: Literal["embedded", "manifest", "mimic", "openi"] = key(
        "embedded", "embedded: synthetic; manifest: a CSV file; mimic: a MIMIC-CXR tree; openi: Indiana University's."
    )
    root: str = key("", "Folder that holds files/ (source mimic), or the unpacked archives of Open-i (source openi).")
    tables: str = key(
        "",
        "Folder of the *-record-list, *-metadata and *-split tables (source mimic), or of the tables of frontal "
        "images (source openi). Missing tables are looked for in root.",
    )
    manifest: str = key(
        "", "CSV: subject_id, study_id, image_id, image_path, report_path or findings/impression (source manifest)."
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
    unknown_view: Literal["exclude", "accept"] = key("exclude", "Images whose view no table or header tells.")
    shared_images: Literal["accept", "exclude"] = key(
        "accept", "Image files that several studies name. accept: kept, with a warning; exclude: excluded."
    )
    modalities: list[Code] = key(lambda: ["CR", "DX", "RG"], "DICOM modalities of radiographs; else wrong_modality.")
    body_parts: list[Code] = key(
        lambda: list(BODY_PARTS),
        "Accepted words in BodyPartExamined; those of five or more letters also as part of a word "
        "(PORTABLECHEST). Empty or unknown ones are accepted, others excluded as wrong_body_part.",
    )
    exclude: str = key("", "Text or CSV file of excluded image or study ids (authors: MS-CXR's).", source=AUTHORS)
    chexstruct: str = key(
        "",
        "Folder of CheXStruct quality tables (mask_number, abdominal_xray, window, inclusion); images that fail "
        "one of those in it are excluded (D.1).",
        source=PAPER,
    )
    split: dict[Literal[SPLITS], Percent] = key(
        dict,
        "Percentages of subjects in train, validate and test, where the table gives no split; every split gets a "
        "subject if possible. {}: 80, 10, 10 below 2,000 subjects, else 98, 1, 1; a cohort that may grow past "
        "2,000 needs numbers to keep its splits.",
        unit="%",
    )

    def split_shares(self) -> list[float]:
        """Return the percentages of train, validate and test; none where the size of the cohort decides."""
        return [self.split[name] for name in SPLITS] if self.split else []

    @constraint
    def _has_its_source(self) -> None:
        for sources, name in ((("manifest",), "manifest"), (("mimic", "openi"), "root")):
            if self.source in sources and not getattr(self, name):
                raise ValueError(f"source is {self.source!r}, so cohort.{name} must be set")
            if self.source not in sources and getattr(self, name):
                choices = " or ".join(sources)
                raise ValueError(f"{name} is given, but source is {self.source!r}: set cohort.source to {choices}")

    @constraint
    def _split_adds_up(self) -> None:
        if not self.split:
            return
        if missing := [name for name in SPLITS if name not in self.split]:
            raise ValueError(f"split: {' and '.join(missing)} must be given too: the three add up to 100")
        if abs(sum(self.split.values()) - 100) > 1e-9:
            raise ValueError("split: train, validate and test must add up to 100")
