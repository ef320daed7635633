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
    """Input images and reports."""

    source: Literal["embedded", "manifest", "mimic", "openi"] = key(
        "embedded",
        "Where images and reports come from. embedded: synthetic images; manifest: a CSV file; mimic: a MIMIC-CXR "
        "folder; openi: the collection Open-i.",
    )
    root: str = key("", "Folder that holds files/ (source: mimic), or Open-i's unpacked archives (source: openi).")
    tables: str = key(
        "",
        "Folder of the *-record-list, *-metadata and *-split tables (source: mimic), or of the tables that list "
        "frontal images (source: openi). Tables that are not in it are looked for in `root`.",
    )
    manifest: str = key(
        "",
        "CSV with a row per image, if `source` is manifest. Columns: subject_id, study_id, image_id, image_path, and "
        "report_path or findings and impression.",
    )
    shards: int | None = key(
        None,
        f"Number of shards, parts of the cohort that are processed in parallel. null: {EMBEDDED_SHARDS} if "
        f"`source` is embedded, otherwise {DEFAULT_SHARDS}. A change reruns everything.",
        ge=1,
        le=4096,
    )
    views: list[Literal["PA", "AP"]] = key(
        lambda: ["PA", "AP"], "Accepted frontal views, in order of preference.", source=PAPER, min_length=1
    )
    unknown_view: Literal["exclude", "accept"] = key(
        "exclude", "Images of unknown view. exclude: they are excluded; accept: they count as frontal."
    )
    shared_images: Literal["accept", "exclude"] = key(
        "accept", "Image files that belong to several studies. accept: kept, with a warning; exclude: excluded."
    )
    modalities: list[Code] = key(
        lambda: ["CR", "DX", "RG"], "Accepted DICOM modalities; other images are excluded as wrong_modality."
    )
    body_parts: list[Code] = key(
        lambda: list(BODY_PARTS),
        "Accepted words in the DICOM field BodyPartExamined. A word of five or more letters also matches inside a "
        "longer word (PORTABLECHEST). Images without a body part are accepted, all others excluded as wrong_body_part.",
    )
    exclude: str = key(
        "", "Text or CSV file of image or study ids to exclude. The authors exclude all of MS-CXR.", source=AUTHORS
    )
    chexstruct: str = key(
        "",
        "Folder of CheXStruct quality tables (mask_number, abdominal_xray, window, inclusion). Images that fail one "
        "of these checks are excluded (D.1).",
        source=PAPER,
    )
    split: dict[Literal[SPLITS], Percent] = key(
        dict,
        "Percentages of subjects in train, validate and test, for subjects to whom the table gives no split. Every "
        "split gets a subject if possible. {}: 80, 10, 10 below 2,000 subjects, otherwise 98, 1, 1. If the cohort may "
        "grow past 2,000 subjects, set numbers, so that its splits do not change.",
        unit="%",
    )

    def split_shares(self) -> list[float]:
        """Return the percentages of train, validate and test; [] if they depend on the cohort's size."""
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
            raise ValueError(f"split: {' and '.join(missing)} must be given too, and the three must add up to 100")
        if abs(sum(self.split.values()) - 100) > 1e-9:
            raise ValueError("split: train, validate and test must add up to 100")
