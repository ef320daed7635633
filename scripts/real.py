"""Real: write the manifest of public X-rays (docs/real.md) so that the workflow runs on them: ``real.py DATA OUT``.

``DATA`` holds covid/ (X-rays with clinical notes, which serve as findings), dicom/ (files that are chest X-rays and
files that are not) and nih/ (X-rays without reports, which end as maps with reason no_report).
"""

import csv
import os
import sys
from collections.abc import Iterator
from pathlib import Path

COLUMNS = ("subject_id", "study_id", "image_id", "image_path", "findings", "view")


def rows(data: Path) -> Iterator[dict[str, str]]:
    """Yield one manifest row for each picture under ``data``."""
    for row in _table(data / "covid" / "covid.csv"):
        stem = Path(row["image"]).stem
        view = row["view"].removesuffix(" Supine")
        image = data / "covid" / "images" / row["image"]
        yield _row(f"covid-{row['patient_id']}", f"covid-{stem}", image, row["clinical_notes"], view)
    for row in _table(data / "dicom" / "dicom.csv"):
        stem = Path(row["file"]).stem
        yield _row(f"dicom-{stem}", f"dicom-{stem}", data / "dicom" / row["file"], "", "")
    for row in _table(data / "nih" / "nih.csv"):
        stem = Path(row["image"]).stem
        image = data / "nih" / "images" / row["image"]
        yield _row(f"nih-{row['patient_id']}", f"nih-{stem}", image, "", row["view"])


def _row(subject: str, study: str, image: Path, findings: str, view: str) -> dict[str, str]:
    return dict(zip(COLUMNS, (subject, study, study, str(image), findings, view), strict=True))


def _table(path: Path) -> Iterator[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def main(data: Path, out: Path, keep: int | None = None) -> None:
    """Write ``out``/manifest.csv and ``out``/mine.yaml; ``keep`` takes every n-th row (for a quick look)."""
    if not data.is_dir():
        sys.exit(
            f"CXR_ILS_SHARED: there is no folder {data}: set it to the folder that holds data/covid, dicom and nih."
        )
    out.mkdir(parents=True, exist_ok=True)
    chosen = sorted(rows(data), key=lambda row: row["image_id"])[:: keep or 1]
    for row in chosen:
        row["image_path"] = os.path.relpath(row["image_path"], out)
    with open(out / "manifest.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(chosen)
    settings = (
        "cohort: {source: manifest, manifest: manifest.csv, shards: 3, split: {train: 60, validate: 20, test: 20}}\n"
    )
    (out / "mine.yaml").write_text(settings, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), int(sys.argv[3]) if len(sys.argv) > 3 else None)
