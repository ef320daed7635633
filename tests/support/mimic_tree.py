"""A little tree in the layout of MIMIC-CXR, and its official tables."""

from pathlib import Path

from cohort_runs import write_csv


def mimic_tree(root: Path, xray: bytes) -> None:
    """Three patients: s1 has AP, PA and a lateral; s2 nothing in the table; s3 a missing file; s4 no report."""
    images = {
        ("10000032", "50000001"): ["aaaa-ap", "bbbb-pa", "cccc-lat"],
        ("10000032", "50000002"): ["dddd-none"],
        ("10000764", "50000003"): [],
        ("11000011", "50000004"): ["ffff-pa"],
    }
    for (subject, study), names in images.items():
        patient = root / f"files/p{subject[:2]}/p{subject}"
        (patient / f"s{study}").mkdir(parents=True)
        if study != "50000004":
            (patient / f"s{study}.txt").write_text("FINDINGS: clear")
        for name in names:
            (patient / f"s{study}" / f"{name}.dcm").write_bytes(b"not opened" if name != "dddd-none" else xray)
        (patient / f"s{study}" / "index.html").write_text("x")


RECORDS = [
    ("10000032", "50000001", "aaaa-ap"),
    ("10000032", "50000001", "bbbb-pa"),
    ("10000032", "50000001", "cccc-lat"),
    ("10000032", "50000002", "dddd-none"),
    ("10000764", "50000003", "eeee-pa"),
    ("11000011", "50000004", "ffff-pa"),
]


METADATA = [
    ("aaaa-ap", "AP", "3056", "2544", "21800506", "80556.875", ""),
    ("bbbb-pa", "PA", "3056", "2544", "21800506", "213014.531", ""),
    ("cccc-lat", "", "3056", "2544", "21800506", "213015", "lateral"),
    ("dddd-none", "", "200", "180", "21800507", "", ""),
    ("eeee-pa", "PA", "3056", "2544", "", "", ""),
    ("ffff-pa", "", "3056", "2544", "21800506", "0", "postero-anterior"),
]


def write_tables(folder: Path) -> None:
    paths = [(image, f"files/p{p[:2]}/p{p}/s{s}/{image}.dcm", s, p) for p, s, image in RECORDS]
    write_csv(folder / "cxr-record-list.csv.gz", ("dicom_id", "path", "study_id", "subject_id"), paths)
    header = ("dicom_id", "ViewPosition", "Rows", "Columns", "StudyDate", "StudyTime", "ViewCodeSequence_CodeMeaning")
    write_csv(folder / "mimic-cxr-2.0.0-metadata.csv.gz", header, METADATA)
    splits = [
        ("train" if p == "10000764" else "validate", image, s, p) for p, s, image in RECORDS if image != "ffff-pa"
    ]
    write_csv(folder / "mimic-cxr-2.0.0-split.csv.gz", ("split", "dicom_id", "study_id", "subject_id"), splits)
