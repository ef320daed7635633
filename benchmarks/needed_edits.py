"""Count the images that ``anomaly.images: with_findings`` edits, and compare datasets made with and without it.

    python benchmarks/needed_edits.py openi FILE       # a fixture of labelled reports
    python benchmarks/needed_edits.py clinical FILE    # the suite of clinical texts
    python benchmarks/needed_edits.py runs ALL SOME    # two results folders: images all, and with_findings

`needs_anomaly_map` decides by a report's tuples whether its image is edited. A report without a usable text needs no
edit. "labelled" counts the reports in which people labelled a lesion whose mask needs the anomaly map. For two runs,
the pairs of images that are unedited in the second run are compared between the runs.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "benchmarks")]

import polars as pl  # noqa: E402

import reports_clinical  # noqa: E402
from cxr.base.tables import read_lines, read_table  # noqa: E402
from cxr.imaging.anomaly.map_anomalies import MAPPED_LESIONS, needs_anomaly_map  # noqa: E402
from cxr.language.reports.read_reports import study_line  # noqa: E402
from reports_labelled import Clinical, Report, read  # noqa: E402

HEAD = ("reports", "usable", "ask for an edit", "share, %", "labelled", "labelled, not asked for")


def counted(texts: Iterable[tuple[str, str | None, str | None, bool]]) -> dict[str, float]:
    """Return counts of texts, each (name, findings, impression, whether a lesion that needs the map is labelled)."""
    reader, rows = reports_clinical.reader(), Counter()
    for name, findings, impression, labelled in texts:
        row = {"study_id": name, "subject_id": name, "findings": findings, "impression": impression}
        line = study_line(row, reader)
        usable = isinstance(line, dict)
        needs_edit = usable and needs_anomaly_map(line["tuples"])
        rows.update(
            {"reports": 1, "usable": usable, "ask for an edit": needs_edit, "labelled": labelled}
            | {"labelled, not asked for": labelled and not needs_edit}
        )
    return {name: rows[name] for name in HEAD} | {"share, %": round(100 * rows["ask for an edit"] / rows["reports"], 1)}


def of_openi(path: Path) -> dict[str, float]:
    """Return the counts of labelled reports."""
    reports = read(path, Report)
    return counted(
        (str(number), one.findings, one.impression, not MAPPED_LESIONS.isdisjoint(one.lesions))
        for number, one in enumerate(reports)
    )


def of_clinical(path: Path) -> dict[str, float]:
    """Return the counts of the texts of the clinical suite."""
    texts = read(path, Clinical)
    said = ({told.lesion for told in text.findings if told.presence == "positive"} for text in texts)
    return counted(
        (text.id, text.text, None, not MAPPED_LESIONS.isdisjoint(lesions))
        for text, lesions in zip(texts, said, strict=True)
    )


def pairs(results: Path, thresholds: str) -> dict[str, set[tuple]]:
    """Return {image: its pairs (whether positive, type, instruction, answer, mask)} of a results folder."""
    found: dict[str, set[tuple]] = {}
    for path in sorted(results.glob(f"dataset/{thresholds}/*.jsonl")):
        for line in read_lines(path):
            told = (bool(line["seg"]), line["type"], line["instruction"], line["answer"], line["mask_id"])
            found.setdefault(line["image_id"], set()).add(told)
    return found


def of_runs(every: Path, some: Path, thresholds: str = "default") -> dict[str, int]:
    """Return counts that compare two runs of one cohort; ``every``, ``some``: results folders without and with the
    setting."""
    studies = pl.concat(read_table(path) for path in sorted(some.glob(f"masks/{thresholds}/*.studies.parquet")))
    kept = set(studies.filter("unedited")["image_id"])
    before, after = pairs(every, thresholds), pairs(some, thresholds)
    told = {"images at the masks": len(studies), "of these not edited": len(kept)}
    lost, new = [set(one) - set(other) for one, other in ((before, after), (after, before))]
    told |= {"images with pairs only if all are edited": len(lost), "… only with_findings": len(new)}
    shared = set(before) & set(after)
    told["pairs of the edited images that differ"] = sum(len(before[one] ^ after[one]) for one in shared - kept)
    for name, sign in (("positive", True), ("negative", False)):
        of = [
            [{pair for pair in made[image] if pair[0] is sign} for made in (before, after)]
            for image in sorted(shared & kept)
        ]
        told[f"{name} pairs of images not edited, if all are edited"] = sum(len(first) for first, _ in of)
        told[f"… {name}, with_findings"] = sum(len(second) for _, second in of)
        told[f"… {name}, the same in both"] = sum(len(first & second) for first, second in of)
    return told


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("openi", "clinical", "runs"))
    parser.add_argument("paths", type=Path, nargs="+")
    given = parser.parse_args()
    ways = {"openi": of_openi, "clinical": of_clinical, "runs": of_runs}
    for name, number in ways[given.what](*given.paths).items():
        print(f"{name}\t{number}")


if __name__ == "__main__":
    main()
