"""Make a simulated cohort in MIMIC-CXR's size and layout: DICOM headers, short reports and the official tables.

    python benchmarks/mimic.py FOLDER [--images 377110] [--seed 2026] [--no-tables]

The numbers of images, studies, patients and views are MIMIC-CXR's or proportional to them. Ids, dates, times and the
sizes of studies are random (``--seed``). No id can be a real id: subjects begin with 9 and studies with 8, where
MIMIC's begin with 1 and 5. The files have no pixels. They are hard links to a few small files, so the cohort needs
little disk space and about one inode per folder.
"""

import argparse
import gzip
import json
import os
import shutil
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ComputedRadiographyImageStorage, ExplicitVRLittleEndian

IMAGES, STUDIES, PATIENTS = 377_110, 227_835, 65_379
"""Numbers in MIMIC-CXR 2.1.0 (Johnson et al., Scientific Data 2019)."""
VIEWS = {"AP": 147_173, "PA": 96_161, "LATERAL": 82_853, "LL": 35_133, "": 15_769, "LAO": 21}
"""{ViewPosition in the metadata table of MIMIC-CXR-JPG 2.0.0: number of images}; LAO stands for all rare views."""
SPLITS = {"train": 64_586, "validate": 500, "test": 293}
"""{official split: number of patients}."""
SIZES = ((3056, 2544), (2544, 3056), (2022, 1736), (2320, 2828))
"""Image sizes (rows, columns), px."""
LOST = 10_000
"""One of this many image files and one of this many reports is missing (at least one), as after an incomplete
download."""
ALONE, TOGETHER = "CHEST (PORTABLE AP)", "CHEST (PA AND LAT)"
"""Requested procedures of studies with one image and with several images. Only the first names the view."""
REPORT = "FINDINGS: The lungs are clear. IMPRESSION: No acute process.\n"
TABLES = ("cxr-record-list", "cxr-study-list", "mimic-cxr-2.0.0-metadata", "mimic-cxr-2.0.0-split")
METADATA = (
    "dicom_id", "subject_id", "study_id", "PerformedProcedureStepDescription", "ViewPosition", "Rows", "Columns",
    "StudyDate", "StudyTime", "ProcedureCodeSequence_CodeMeaning", "ViewCodeSequence_CodeMeaning",
    "PatientOrientationCodeSequence_CodeMeaning",
)  # fmt: skip


@dataclass(frozen=True)
class Cohort:
    """A simulated cohort before its files are written.

    ``images`` has one row per image with the columns of the official tables, ``path``, ``header_view`` (ViewPosition in
    its DICOM header) and ``there`` (whether its file exists). ``studies`` has study_id, subject_id, path and ``there``.
    """

    images: pl.DataFrame
    studies: pl.DataFrame

    def expected(self, tables: bool = True) -> dict[str, int]:
        """Return {reason: number of images} that the stage cohort must give; "accepted" counts the accepted images.

        Without tables, missing files are not known and not counted.
        """
        says = pl.when(pl.col("header_view") != "").then("header_view").otherwise("ordered")
        frontal = says.is_in(["AP", "PA", ALONE])
        reason = (
            pl.when(~pl.col("there")).then(pl.lit("missing_file"))
            .when(frontal).then(pl.lit("accepted"))
            .when(says == TOGETHER).then(pl.lit("unknown_view"))
            .otherwise(pl.lit("not_frontal"))
        )  # fmt: skip
        known = self.images if tables else self.images.filter("there")
        ordered = known.rename({"PerformedProcedureStepDescription": "ordered"})
        return dict(ordered.select(reason.alias("reason")).group_by("reason").len().sort("reason").iter_rows())


def shares(whole: int, parts: dict[str, int]) -> dict[str, int]:
    """Divide ``whole`` in the proportions of ``parts``, by the method of largest remainders."""
    exact = {name: whole * part / sum(parts.values()) for name, part in parts.items()}
    found = {name: int(share) for name, share in exact.items()}
    for name in sorted(exact, key=lambda name: found[name] - exact[name])[: whole - sum(found.values())]:
        found[name] += 1
    return found


def _owners(rng: np.random.Generator, things: int, owners: int, spread: float) -> np.ndarray:
    """Return the owner of each thing, int (things,), sorted. Each owner has at least one; the numbers are
    log-normal."""
    weights = rng.lognormal(0, spread, owners)
    rest = rng.choice(owners, things - owners, p=weights / weights.sum())
    return np.sort(np.concatenate([np.arange(owners), rest]))


def _numbers(rng: np.random.Generator, count: int, first_digit: str) -> list[str]:
    """Return sorted distinct numbers of eight digits as texts."""
    drawn = np.sort(rng.choice(10_000_000, count, replace=False))
    return [f"{first_digit}{number:07d}" for number in drawn]


def _dicom_ids(rng: np.random.Generator, count: int) -> list[str]:
    words = rng.integers(0, 2**32, (count, 5), dtype=np.uint64)
    return ["-".join(f"{word:08x}" for word in row) for row in words.tolist()]


def _views(rng: np.random.Generator, place: np.ndarray) -> np.ndarray:
    """Return a random view for each image; ``place``: its index in the study. Frontal views usually come first."""
    counts = shares(len(place), VIEWS)
    views = np.repeat(list(counts), list(counts.values()))
    frontal = counts["AP"] + counts["PA"]
    views[:frontal] = rng.permutation(views[:frontal])
    views[frontal:] = rng.permutation(views[frontal:])
    found = np.empty_like(views)
    found[np.argsort(place + rng.uniform(0, 1.1, len(place)))] = views
    return found


def plan(images: int = IMAGES, seed: int = 2026) -> Cohort:
    """Draw a cohort of ``images`` images, at least 12."""
    rng = np.random.default_rng(seed)
    counts = shares(images, {"more": IMAGES - STUDIES, "study": STUDIES - PATIENTS, "patient": PATIENTS})
    patients, studies = counts["patient"], counts["patient"] + counts["study"]
    study = _owners(rng, images, studies, 0.3)
    patient = _owners(rng, studies, patients, 1.2)
    subject_id, study_id = np.array(_numbers(rng, patients, "9")), np.array(_numbers(rng, studies, "8"))
    first = np.searchsorted(study, np.arange(studies))
    alone = np.bincount(study) == 1
    view = _views(rng, np.arange(images) - first[study])
    # every other image without a view in the tables has one in its header
    header_view = np.where((view == "") & (rng.random(images) < 0.5) & ~alone[study], "PA", view)
    split = rng.permutation(np.repeat(list(SPLITS), list(shares(patients, SPLITS).values())))
    folder = [f"files/p{p[:2]}/p{p}/s{s}" for p, s in zip(subject_id[patient], study_id, strict=True)]
    days = rng.integers(0, 36_500, studies)
    dates = (np.datetime64("2110-01-01") + days).astype(str)
    seconds = rng.integers(0, 86_400, images)
    clock = seconds // 3600 * 10_000 + seconds // 60 % 60 * 100 + seconds % 60
    size = rng.integers(0, len(SIZES), images)
    rows = pl.DataFrame(
        {
            "dicom_id": _dicom_ids(rng, images),
            "subject_id": subject_id[patient][study],
            "study_id": study_id[study],
            "PerformedProcedureStepDescription": np.where(alone[study], ALONE, TOGETHER),
            "ViewPosition": view,
            "Rows": np.array(SIZES)[size, 0],
            "Columns": np.array(SIZES)[size, 1],
            "StudyDate": np.char.replace(dates, "-", "")[study],
            "StudyTime": [f"{number}.{thousandth}" for number, thousandth in zip(clock, seconds % 1000, strict=True)],
            "folder": np.array(folder)[study],
            "split": split[patient][study],
            "header_view": header_view,
            "there": rng.permutation(images) >= max(1, images // LOST),
        }
    )
    meaning = {"AP": "antero-posterior", "PA": "postero-anterior", "LATERAL": "lateral", "LL": "lateral"}
    rows = rows.with_columns(
        path=pl.format("{}/{}.dcm", "folder", "dicom_id"),
        ViewCodeSequence_CodeMeaning=pl.col("ViewPosition").replace_strict(meaning, default=""),
        ProcedureCodeSequence_CodeMeaning=pl.lit("CHEST"),
        PatientOrientationCodeSequence_CodeMeaning=pl.lit("Erect"),
    )
    reports = {"study_id": study_id, "subject_id": subject_id[patient], "path": [f"{name}.txt" for name in folder]}
    there = rng.permutation(studies) >= max(1, studies // LOST)
    return Cohort(rows.drop("folder"), pl.DataFrame(reports | {"there": there}))


class Links:
    """Many hard links to one small file, with a new copy when the file system allows no more links."""

    def __init__(self, content: bytes):
        self.content, self.source = content, None

    def make(self, path: str) -> None:
        """Add a file name."""
        try:
            if self.source is not None:
                os.link(self.source, path)
                return
        except OSError:  # 65,000 links on ext4, none at all elsewhere
            pass
        Path(path).write_bytes(self.content)
        self.source = path


def header(view: str, ordered: str) -> bytes:
    """Return a DICOM file of a chest X-ray without pixels. ``view``: ViewPosition; ``ordered``: requested procedure."""
    made = Dataset()
    made.SOPClassUID = ComputedRadiographyImageStorage
    made.SOPInstanceUID = "1.2.826.0.1.3680043.8.498.1"
    made.Modality, made.BodyPartExamined, made.ViewPosition = "CR", "CHEST", view
    made.PerformedProcedureStepDescription = ordered
    made.StudyDate, made.StudyTime = "21100101", "120000"
    made.Rows, made.Columns = SIZES[0]
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    stream = BytesIO()
    made.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


def _write_csv(path: Path, table: pl.DataFrame) -> None:
    with gzip.GzipFile(path, "wb", compresslevel=1, mtime=0) as file:
        file.write(table.write_csv().encode())


def write(cohort: Cohort, folder: Path, tables: bool = True) -> None:
    """Empty ``folder``, then write the cohort's files (files/p90/…) and, with ``tables``, the official tables."""
    shutil.rmtree(folder, ignore_errors=True)
    for study in cohort.studies["path"]:
        os.makedirs(folder / study.removesuffix(".txt"))
    base = os.path.join(folder, "")
    links: dict[tuple[str, str], Links] = {}
    names = ("path", "header_view", "PerformedProcedureStepDescription")
    for path, *kind in cohort.images.filter("there").select(names).iter_rows():
        key = tuple(kind)
        if key not in links:
            links[key] = Links(header(*key))
        links[key].make(base + path)
    report = Links(REPORT.encode())
    for path in cohort.studies.filter("there")["path"]:
        report.make(base + path)
    if tables:
        record = cohort.images.select("subject_id", "study_id", "dicom_id", "path")
        split = cohort.images.select("dicom_id", "study_id", "subject_id", "split")
        studies = cohort.studies.select("subject_id", "study_id", "path")
        for name, table in zip(TABLES, (record, studies, cohort.images.select(METADATA), split), strict=True):
            _write_csv(folder / f"{name}.csv.gz", table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--no-tables", action="store_true", help="headers alone tell views, sizes and times")
    given = parser.parse_args()
    cohort = plan(given.images, given.seed)
    write(cohort, given.folder, not given.no_tables)
    counts = {"images": cohort.images.height, "studies": cohort.studies.height}
    print(json.dumps(counts | {"expected": cohort.expected(not given.no_tables)}))


if __name__ == "__main__":
    main()
