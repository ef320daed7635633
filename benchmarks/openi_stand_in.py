"""Run the workflow with the lite engines on Open-i's reports, with other X-rays in place of Open-i's images.

    python benchmarks/openi_stand_in.py OPENI DATA [--folder openi-stand-in] [--cores 2]

OPENI is the folder of `make openi`, and DATA the folder with nih/ and nih_more/ (docs/how-to/real.md). Each X-ray of
NIH ChestX-ray14 replaces the images of one Open-i report with similar kinds of finding in its MeSH terms. The side and
the size of the findings do not match, so the numbers of grounded findings say little. XML files, image names and tables
are Open-i's. The program runs the whole workflow and prints two tables in Markdown.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import cv2  # noqa: E402
import polars as pl  # noqa: E402

from cxr.base.tables import read_table  # noqa: E402
from cxr.base.vocabulary import LESIONS  # noqa: E402
from cxr.imaging.cohort.openi import Report, read_report, read_tables, settle_views  # noqa: E402  # noqa: E402
from cxr.imaging.cohort.openi_files import view_tables  # noqa: E402

KINDS = {
    "heart": ({"Cardiomegaly"}, {"Cardiomegaly"}),
    "effusion": ({"Effusion"}, {"Pleural Effusion"}),
    "atelectasis": ({"Atelectasis"}, {"Pulmonary Atelectasis"}),
    "edema": ({"Edema"}, {"Pulmonary Edema", "Pulmonary Congestion"}),
    "opacity": (
        {"Consolidation", "Infiltration", "Pneumonia"},
        {"Opacity", "Infiltrate", "Consolidation", "Airspace Disease", "Density", "Pneumonia"},
    ),
}
"""{kind of finding: (NIH's labels, Open-i's MeSH terms)}."""
FRONTAL = ("PA", "AP")


def kinds(names: set[str], of_openi: bool) -> frozenset[str]:
    """Return the kinds of finding of a set of names, which are MeSH terms if ``of_openi``, else NIH's labels."""
    return frozenset(kind for kind, both in KINDS.items() if names & both[of_openi])


def terms(path: Path) -> set[str]:
    """Return the MeSH terms of a report, without their qualifiers."""
    return {(node.text or "").split("/")[0] for node in ElementTree.parse(path).iter("major")}


def reports(openi: Path) -> Iterator[tuple[Path, Report, frozenset[str]]]:
    """Yield (path, report, kinds of finding) of the reports with a text and, by the tables, a frontal image."""
    paths = sorted((openi / "ecgen-radiology").glob("*.xml"), key=lambda path: int(path.stem))
    read = [(path, read_report(path)) for path in paths]
    views = settle_views([report.images for _, report in read], read_tables(view_tables(str(openi), "")))
    for path, report in read:
        if (report.findings or report.impression) and any(views[name] in FRONTAL for name, _ in report.images):
            yield path, report, kinds(terms(path), of_openi=True)


def films(data: Path) -> Iterator[tuple[Path, frozenset[str]]]:
    """Yield (path, kinds of finding by its labels) of the X-rays."""
    for name in ("nih", "nih_more"):
        table = pl.read_csv(data / name / f"{name}.csv", infer_schema=False)
        for image, labels in table.select("image", "nih_labels").iter_rows():
            yield data / name / "images" / image, kinds(set(labels.split("|")), of_openi=False)


def lay_out(openi: Path, data: Path, folder: Path) -> int:
    """Assign each X-ray to the unused report with the most similar findings, and write the files; return their
    number."""
    left = list(reports(openi))
    for directory in ("ecgen-radiology", "NLMCXR_png"):
        (folder / directory).mkdir(parents=True)
    for table in openi.glob("*.csv*"):
        shutil.copy(table, folder)
    pictures = list(films(data))
    for film, shown in pictures:
        chosen = min(range(len(left)), key=lambda place: len(left[place][2] ^ shown))
        path, report, _ = left.pop(chosen)
        shutil.copy(path, folder / "ecgen-radiology")
        grey = cv2.imread(str(film), cv2.IMREAD_GRAYSCALE)
        for name, _ in report.images:  # the laterals too: the tables are to leave them out
            cv2.imwrite(str(folder / "NLMCXR_png" / f"{name}.png"), grey)
    return len(pictures)


def stages(results: Path) -> list[tuple[str, str, int]]:
    """Return (stage, numbers of excluded images by reason, number of remaining images) of a finished run."""
    funnel = read_table(results / "tables/funnel.tsv").filter(thresholds="default")
    return [
        (
            str(name),
            ", ".join(
                f"{number} `{reason}`" for reason, number in part.select("reason", "images").iter_rows() if reason
            ),
            part["remaining"].min(),
        )
        for (name,), part in funnel.group_by("stage", maintain_order=True)
    ]


def grounded(results: Path) -> list[tuple[str, int, int]]:
    """Return (lesion type, findings with a mask, findings) under the default thresholds."""
    findings = read_table(results / "masks/default/findings.parquet").drop_nulls("target")
    return [
        (lesion, part["mask_id"].count(), part.height)
        for lesion in LESIONS
        if (part := findings.filter(target=lesion)).height
    ]


def main() -> None:
    """Write the files, run the workflow and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("openi", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--folder", type=Path, default=ROOT / "openi-stand-in")
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args()
    folder = given.folder.resolve()
    if folder.exists():
        parser.error(f"{folder} is there already: remove it, or give another --folder")
    number = lay_out(given.openi, given.data, folder)
    command = [sys.executable, "-m", "snakemake", "all", "--cores", str(given.cores), "--quiet", "all"]
    command += ["--directory", str(folder), "--configfile", str(ROOT / "examples/openi.yaml")]
    subprocess.run(command, cwd=ROOT, check=True)
    print(f"{number} X-rays\n\n| stage | stopped there | images left |\n|---|---|---|")
    for stage, told, left in stages(folder / "results"):
        print(f"| {stage} | {told} | {left:,} |")
    print("\n| lesion type | findings with a mask | findings |\n|---|---|---|")
    for lesion, masks, number in grounded(folder / "results"):
        print(f"| {lesion} | {masks} | {number} |")


if __name__ == "__main__":
    main()
