"""Open-i: the XML, images and view tables of the Indiana University collection, generated and (`make openi`) real."""

import json
import os
import re
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest

from cohort_runs import options, run_cohort
from conftest import ROOT, snakemake, write_settings
from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.tables import read_lines, read_table, write_table
from cxr.base.vocabulary import LESIONS
from cxr.imaging.cohort.check import check_inputs, source_files
from cxr.imaging.cohort.openi import UNSETTLED, read_openi, read_report, read_tables, settle_views
from cxr.imaging.cohort.openi_files import parse_name, view_tables
from cxr.imaging.cohort.rows import SHARD
from cxr.imaging.cohort.view import OTHER
from cxr.language.reports.read_reports import ReportsOptions as ReportsOptions
from cxr.language.reports.read_reports import run_shard as read_shard
from cxr.workflow import settings
from cxr.workflow.params import stage_options
from dicom_files import dataset, encoded, picture, stored_values
from openi_tree import write_headers, write_image, write_projections, write_report

PAGE = (ROOT / "docs/getting-started/openi.md").read_text(encoding="utf-8")
REAL = Path(os.environ.get("CXR_ILS_OPENI", ROOT / "openi"))
WITHOUT_TABLES = {"source": "openi", "unknown_view": "accept", "shards": 2}


@pytest.fixture(scope="session")
def real() -> Path:
    """The folder that `make openi` fills; skips visibly where it is absent."""
    if not (REAL / "ecgen-radiology").is_dir():
        pytest.skip(f"no real reports of Open-i: run `make openi` (CXR_ILS_OPENI is {REAL})")
    return REAL


@pytest.fixture
def collection(tmp_path) -> Path:
    """Three reports: two images, one image, none; and an image that no report names."""
    root = tmp_path / "openi"
    write_report(root, 1, ["CXR1_1_IM-0001-3001", "CXR1_1_IM-0001-4001"])
    write_report(root, 20, ["CXR20_IM-0653-1001"], findings="Small left effusion.", impression="")
    write_report(root, 3, [])
    for name in ("CXR1_1_IM-0001-3001.png", "CXR1_1_IM-0001-4001.png", "CXR20_IM-0653-1001.png"):
        write_image(root, name)
    return root


def read(root: Path, tables: str = "") -> list:
    with ThreadPoolExecutor(2) as pool:
        return read_openi(str(root), tables, pool)


@pytest.mark.parametrize(
    ("name", "key", "report", "ending"),
    [
        ("CXR1_1_IM-0001-3001", "1_IM-0001-3001", "1", ""),
        ("CXR1_1_IM-0001-3001.png", "1_IM-0001-3001", "1", ".png"),
        ("1_IM-0001-3001.dcm", "1_IM-0001-3001", "1", ".dcm"),
        ("1_IM-0001-3001.dcm.png", "1_IM-0001-3001", "1", ".png"),
        ("CXR1001_IM-0004-1001.png", "1001_IM-0004-1001", "1001", ".png"),
        ("CXR2563_IM-1065-0001-0002.jpg", "2563_IM-1065-0001-0002", "2563", ".jpg"),
    ],
)
def test_every_archive_calls_an_image_otherwise(name, key, report, ending):
    parsed = parse_name(name)
    assert (parsed.key, parsed.report, parsed.ending) == (key, report, ending)


@pytest.mark.parametrize("name", ["panel.png", "1.xml", "CXR1.png", "IM-0001-3001.png", "CXR1_1_IM-0001-3001.txt"])
def test_other_files_are_no_images(name):
    assert parse_name(name) is None


def test_a_report_gives_its_texts_and_images(collection):
    report = read_report(collection / "ecgen-radiology/20.xml")
    assert (report.uid, report.findings, report.impression) == ("CXR20", "Small left effusion.", "")
    assert report.images == (("CXR20_IM-0653-1001", "PA and lateral chest x-XXXX XXXX."),)
    assert not report.fault


def test_findings_and_impression_alone_are_read(collection):
    """The indication names a pneumonia: no word of it may reach the reports stage."""
    row = next(row for row in read(collection) if row.study_id == "CXR20")
    assert (row.findings, row.impression, row.report_path) == ("Small left effusion.", "", None)


def test_rows_are_the_images_that_the_reports_name(collection):
    rows = {row.image_id: row for row in read(collection)}
    assert rows.keys() == {"CXR1_1_IM-0001-3001", "CXR1_1_IM-0001-4001", "CXR20_IM-0653-1001"}
    assert {(row.subject_id, row.study_id) for row in rows.values()} == {("CXR1", "CXR1"), ("CXR20", "CXR20")}
    assert rows["CXR20_IM-0653-1001"].path == str(collection / "NLMCXR_png/CXR20_IM-0653-1001.png")


def test_what_is_wrong_with_the_collection_is_a_row(collection):
    (collection / "NLMCXR_png/CXR1_1_IM-0001-4001.png").unlink()
    write_image(collection, "CXR77_IM-0001-1001.png")
    (collection / "ecgen-radiology/20.xml").write_text("<eCitation><uId id=", encoding="utf-8")
    (collection / "ecgen-radiology/4.xml").write_text("<html/>", encoding="utf-8")
    result = run_cohort(collection, root=str(collection), **WITHOUT_TABLES)
    result.check_conserved(5)
    assert result.reasons == {
        "CXR1_1_IM-0001-4001": "missing_file",
        "CXR77_IM-0001-1001": "bad_row",
        "CXR20_IM-0653-1001": "bad_row",
        "CXR4": "bad_row",
    }
    assert result.details["CXR77_IM-0001-1001"] == "no report of the collection names this image"
    assert result.details["CXR20_IM-0653-1001"].startswith("the XML is malformed at line 1, column ")
    assert "no eCitation" in result.details["CXR4"]


def test_an_entity_bomb_is_a_broken_report(collection):
    bomb = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "lol" * 10}">' for n in range(12))
    text = f'<!DOCTYPE eCitation [{bomb}]><eCitation><uId id="CXR20"/><AbstractText>&e11;</AbstractText></eCitation>'
    (collection / "ecgen-radiology/20.xml").write_text(text, encoding="utf-8")
    assert read_report(collection / "ecgen-radiology/20.xml").fault


def test_dicom_kaggle_and_nlm_names_are_found(collection):
    for path in (collection / "NLMCXR_png").iterdir():
        path.unlink()
    write_image(collection, "1_IM-0001-4001.dcm.png", folder="images/images_normalized")
    dicom = collection / "NLMCXR_dcm/1/1_IM-0001-3001.dcm"
    dicom.parent.mkdir(parents=True)
    dicom.write_bytes(encoded(dataset(stored_values(picture(200, 180), 12, False), 12)))
    write_image(collection, "CXR20_IM-0653-1001.png")
    (collection / "results/figures").mkdir(parents=True)  # our own pictures are no data
    write_image(collection, "CXR99_IM-0653-1001.png", folder="results/figures")
    result = run_cohort(collection, root=str(collection), **WITHOUT_TABLES)
    result.check_conserved(3)
    assert {Path(path).suffix for path in result.accepted["path"]} == {".dcm", ".png"}
    assert result.accepted.height == 3


def test_of_two_files_of_an_image_the_png_is_read(collection):
    dicom = collection / "dcm/1_IM-0001-3001.dcm"
    dicom.parent.mkdir()
    dicom.write_bytes(encoded(dataset(stored_values(picture(200, 180), 8, False))))
    rows = {row.image_id: row.path for row in read(collection)}
    assert rows["CXR1_1_IM-0001-3001"].endswith(".png")
    assert len(rows) == 3


def test_projections_tell_the_view(collection):
    write_projections(
        collection,
        [
            ("1_IM-0001-4001.dcm.png", "Frontal"),
            ("1_IM-0001-3001.dcm.png", "Lateral"),
            ("20_IM-0653-1001.dcm.png", "Frontal"),
        ],
    )
    result = run_cohort(collection, source="openi", root=str(collection), shards=2)
    assert result.reasons == {"CXR1_1_IM-0001-3001": "not_frontal"}
    assert set(result.accepted["view"]) == {"PA"}


def test_a_caption_that_says_ap_alone_makes_the_frontal_view_ap():
    tables = read_tables({})
    tables.projections["5_IM-0001-1001"] = "frontal"
    views = {
        caption: settle_views([[("CXR5_IM-0001-1001", caption)]], tables)["CXR5_IM-0001-1001"]
        for caption in ("Chest AP portable", "PA and lateral chest", "")
    }
    assert views == {"Chest AP portable": "AP", "PA and lateral chest": "PA", "": "PA"}


VIEWS = [
    # (what headers and clusters say of the images of one report, what each is)
    ([("PA", "['L', 'F']", "PA"), ("PA", "['L', 'F']", "")], ["PA", UNSETTLED]),  # most headers call laterals PA
    ([("", "", "PA"), ("", "", "")], ["PA", UNSETTLED]),
    ([("PA", "['L', 'F']", "PA"), ("LL", "['A', 'F']", "")], ["PA", OTHER]),
    ([("AP", "['L', 'F']", "PA"), ("LATERAL", "", "")], ["AP", OTHER]),
    ([("", "", "L"), ("AP", "['L', 'F']", "")], [OTHER, "AP"]),  # the second is all that is left
    ([("PA", "['L', 'F']", "L"), ("PA", "['L', 'F']", "")], [OTHER, "PA"]),
    ([("", "", "L"), ("", "", "")], [OTHER, "PA"]),
    ([("PA", "['P', 'F']", "")], [OTHER]),  # rows that run front to back, whatever ViewPosition says
    ([("", "", "L"), ("PA", "", ""), ("", "", "")], [OTHER, "PA", UNSETTLED]),
    ([("", "", "L"), ("", "", ""), ("", "", "")], [OTHER, "", ""]),
    ([("RL", "", "L")], [OTHER]),
]


@pytest.mark.parametrize(("told", "wanted"), VIEWS)
def test_headers_and_clusters_tell_the_view(tmp_path, told, wanted):
    ids = [f"CXR9_IM-0001-{n}001" for n in range(1, len(told) + 1)]
    headers = [(name, position, rows) for name, (position, rows, _) in zip(ids, told, strict=True)]
    write_headers(tmp_path, headers, [(name, seen) for name, (*_, seen) in zip(ids, told, strict=True) if seen])
    views = settle_views([[(name, "") for name in ids]], read_tables(view_tables(str(tmp_path), "")))
    assert [views[name] for name in ids] == wanted


def test_projections_go_before_headers_and_fill_up_from_them(collection):
    write_headers(
        collection,
        [("CXR1_IM-0001-3001", "PA", ""), ("CXR1_IM-0001-4001", "PA", ""), ("CXR20_IM-0653-1001", "AP", "")],
        [("CXR1_1_IM-0001-3001", "PA"), ("CXR20_IM-0653-1001", "PA")],
    )
    write_projections(collection, [("1_IM-0001-4001.dcm.png", "Frontal"), ("1_IM-0001-3001.dcm.png", "Lateral")])
    views = {row.image_id: row.view for row in read(collection)}
    assert views == {"CXR1_1_IM-0001-3001": OTHER, "CXR1_1_IM-0001-4001": "PA", "CXR20_IM-0653-1001": "AP"}


def test_an_image_beside_a_frontal_one_is_never_taken_for_it(collection):
    """Headers call laterals PA, so a DICOM without a certain view would compete by its acquisition time."""
    for number, time in ((3001, "080000"), (4001, "070000")):
        path = collection / f"dcm/1_IM-0001-{number}.dcm"
        path.parent.mkdir(exist_ok=True)
        tags = {"AcquisitionDate": "20120101", "AcquisitionTime": time}
        path.write_bytes(encoded(dataset(stored_values(picture(200, 180), 8, False), **tags)))
        (collection / f"NLMCXR_png/CXR1_1_IM-0001-{number}.png").unlink()
    rows = [("CXR1_IM-0001-3001", "PA", ""), ("CXR1_IM-0001-4001", "PA", ""), ("CXR20_IM-0653-1001", "", "")]
    write_headers(collection, rows, [("CXR1_1_IM-0001-3001", "PA"), ("CXR20_IM-0653-1001", "PA")])
    result = run_cohort(collection, source="openi", root=str(collection), shards=2)
    assert result.reasons == {"CXR1_1_IM-0001-4001": "unknown_view"}
    assert "another image of the report is frontal" in result.details["CXR1_1_IM-0001-4001"]


MISTAKES = [
    (lambda root: {"root": str(root / "none")}, "there is no folder"),
    (lambda root: {"root": str(root / "NLMCXR_png")}, "unpack NLMCXR_reports.tgz there, or run `make openi`"),
    (lambda root: {"tables": str(root / "NLMCXR_png")}, "holds neither indiana_projections.csv nor"),
    (lambda root: {"unknown_view": "exclude"}, "no table tells which images are frontal"),
]


@pytest.mark.parametrize(("changes", "words"), MISTAKES)
def test_a_mistake_is_one_sentence(collection, changes, words):
    with pytest.raises(UserError, match=re.escape(words)):
        check_inputs(options(**WITHOUT_TABLES | {"root": str(collection)} | changes(collection)))


def test_reports_without_images_are_one_sentence(collection):
    for path in (collection / "NLMCXR_png").iterdir():
        path.unlink()
    with pytest.raises(UserError, match=re.escape("unpack NLMCXR_png.tgz (or NLMCXR_dcm.tgz) there")):
        check_inputs(options(root=str(collection), **WITHOUT_TABLES))


def test_a_table_that_is_none_is_one_sentence(collection):
    (collection / "indiana_projections.csv").write_text("uid,filename\n1,a.png\n", encoding="utf-8")
    with pytest.raises(UserError, match="lacks the column projection"):
        read(collection)


def test_the_tables_are_inputs_of_the_cohort(collection):
    chosen = options(root=str(collection), **WITHOUT_TABLES)
    assert source_files(chosen) == {"tables": []}
    path = write_projections(collection, [("1_IM-0001-4001.dcm.png", "Frontal")])
    assert source_files(chosen) == {"tables": [str(path)]}


def test_text_of_the_reports_is_never_released():
    chosen = {"cohort": {"source": "openi", "root": "."}}
    assert "report_text" in settings.read(chosen).release.kinds()
    with pytest.raises(settings.SettingsError, match=r"CC BY-NC-ND.*add report_text to release\.withhold"):
        settings.read(chosen | {"release": {"withhold": ["pixels"]}})
    with pytest.raises(settings.SettingsError, match="CC BY-NC-ND"):
        settings.read(chosen | {"release": {"withhold": False}})


# the real files

COUNTS = {
    "reports": 3955,
    "reports that name no image": 104,
    "images named": 7470,
    "reports with findings": 3425,
    "reports with an impression": 3921,
    "reports with either": 3927,
}
VIEW_COUNTS = {"frontal images": 3707, "lateral images": 1322, "images without a certain view": 2441}
FRONTAL_STUDIES = 3680


def test_every_real_report_is_read(real):
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(read_report, sorted((real / "ecgen-radiology").glob("*.xml"))))
    assert {
        "reports": len({report.uid for report in reports}),
        "reports that name no image": sum(not report.images for report in reports),
        "images named": len({image for report in reports for image, _ in report.images}),
        "reports with findings": sum(bool(report.findings) for report in reports),
        "reports with an impression": sum(bool(report.impression) for report in reports),
        "reports with either": sum(bool(report.findings or report.impression) for report in reports),
    } == COUNTS
    assert not any(report.fault for report in reports)
    assert Counter(len(report.images) for report in reports) == {2: 3208, 1: 446, 3: 181, 0: 104, 4: 15, 5: 1}
    assert all(parse_name(image) for report in reports for image, _ in report.images)


def test_the_real_tables_find_a_frontal_image_of_nearly_every_report(real):
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(read_report, sorted((real / "ecgen-radiology").glob("*.xml"))))
    views = settle_views([report.images for report in reports], read_tables(view_tables(str(real), "")))
    named = {"PA": "frontal images", "AP": "frontal images", OTHER: "lateral images"}
    kinds = Counter(named.get(view, "images without a certain view") for view in views.values())
    assert kinds == VIEW_COUNTS
    frontal: dict[str, int] = defaultdict(int)
    for report in reports:
        frontal[report.uid] += any(views[image] in ("PA", "AP") for image, _ in report.images)
    assert sum(frontal.values()) == FRONTAL_STUDIES


@pytest.mark.slow
def test_every_real_text_is_read(real, tmp_path):
    """No text of the collection is classified as another language, too long, or no report."""
    reports = [read_report(path) for path in sorted((real / "ecgen-radiology").glob("*.xml"))]
    columns = ("image_id", "study_id", "subject_id", "findings", "impression")
    rows = [(report.uid, report.uid, report.uid, report.findings, report.impression) for report in reports]
    table = pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")
    told = {
        "split": "train",
        "path": "",
        "view": "PA",
        "rank": 0,
        "report_path": None,
        "acquired": None,
        "report_missing": False,
    }
    literals = [pl.lit(told[name], dtype=kind).alias(name) for name, kind in schema(SHARD).items() if name in told]
    write_table(tmp_path / "cohort.parquet", table.with_columns(literals).select(list(schema(SHARD))))
    chosen = stage_options(settings.read({"cohort": {"source": "openi", "root": "."}}))["reports"]
    output, excluded = tmp_path / "out.jsonl", tmp_path / "excluded.parquet"
    read_shard(
        cohort=str(tmp_path / "cohort.parquet"),
        output=str(output),
        excluded=str(excluded),
        options=ReportsOptions(**chosen),
        attrs={},
    )
    assert Counter(read_table(excluded)["reason"]) == {"empty_report": 3955 - COUNTS["reports with either"]}
    affirmed: dict[str, int] = Counter()
    for line in read_lines(output):
        found = {each["lesion_type"] for each in line["tuples"] if each["presence"] == "positive"}
        affirmed.update(found - {None})
    assert affirmed.keys() == set(LESIONS)
    assert affirmed["cardiomegaly"] > 300
    assert affirmed["opacity"] > 400
    assert affirmed["effusion"] > 80


def test_the_page_states_these_counts():
    for what, number in {**COUNTS, **VIEW_COUNTS}.items():
        assert f"| {what} | {number:,} |" in PAGE, what
    assert f"| reports with a frontal image | {FRONTAL_STUDIES:,} |" in PAGE


# the workflow

FILM_TEXTS = (
    {"findings": "There is a small left pleural effusion. Right basilar opacity.", "impression": "Effusion."},
    {"findings": "The lungs are clear. No pleural effusion.", "impression": "No acute disease."},
    {"findings": "Heart is enlarged. Patchy opacity in the left lower lobe.", "impression": ""},
)


def films(shared: Path, count: int) -> list[np.ndarray]:
    paths = sorted((shared / "data/nih/images").glob("*.png"))[:: 98 // count][:count]
    return [cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) for path in paths]


def real_texts(count: int) -> list[dict[str, str]]:
    """Return texts of real reports if available, else our own."""
    folder = REAL / "ecgen-radiology"
    if not folder.is_dir():
        return [FILM_TEXTS[number % 3] for number in range(count)]
    chosen = [read_report(folder / f"{number}.xml") for number in range(10, 10 + 3 * count, 3)]
    escape = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
    return [{"findings": r.findings.translate(escape), "impression": r.impression.translate(escape)} for r in chosen]


def small_openi(root: Path, shared: Path, count: int = 8) -> None:
    """Write real X-rays in Open-i's layout: a frontal and another image each, with torchxrayvision's tables."""
    headers, seen = [], []
    for number, (film, texts) in enumerate(zip(films(shared, count), real_texts(count), strict=True), 1):
        ids = [f"CXR{number}_IM-{number:04}-1001", f"CXR{number}_IM-{number:04}-2001"]
        write_report(root, number, ids, **texts)
        for name in ids:
            write_image(root, f"{name}.png", film)
        headers += [(ids[0], "PA", "['L', 'F']"), (ids[1], ("LL", "PA")[number % 2], "")]
        seen.append((ids[0], "PA"))
    write_headers(root, headers, seen)


def example(name: str = "openi.yaml") -> str:
    return str(ROOT / "examples" / name)


@pytest.mark.slow
def test_the_example_plans_the_whole_workflow(shared, tmp_path, dry_run):
    small_openi(tmp_path, shared, count=2)
    write_settings(tmp_path, {})
    jobs = dry_run(tmp_path, "--configfile", example())
    assert jobs["cohort_shards"] == 1
    assert jobs["reports_shard"] == 16


def test_the_example_without_images_says_what_to_download(shared, tmp_path):
    small_openi(tmp_path, shared, count=2)
    for path in (tmp_path / "NLMCXR_png").iterdir():
        path.unlink()
    write_settings(tmp_path, {})
    done = snakemake(tmp_path, "--dry-run", "--configfile", example(), check=False)
    assert done.returncode
    assert "unpack NLMCXR_png.tgz" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_whole_workflow_on_real_films_in_the_layout(shared, tmp_path):
    small_openi(tmp_path, shared)
    chosen = {"source": "openi", "root": ".", "shards": 2, "split": {"train": 60, "validate": 20, "test": 20}}
    write_settings(tmp_path, {"cohort": chosen, "figures": {"studies": 1}, "page": {"gallery": 1}})
    snakemake(tmp_path, "all", "release")
    results = tmp_path / "results"
    reasons = Counter(read_table(results / "cohort/excluded.parquet")["reason"])
    assert reasons == {"not_frontal": 4, "unknown_view": 4}
    balanced = read_table(results / "tables/conservation.tsv")
    assert set(balanced["balanced"]) == {"yes"}
    assert (results / "index.html").read_text(encoding="utf-8").count("Indiana University")
    lines = [line for path in (results / "dataset/default").glob("*.jsonl") for line in read_lines(path)]
    assert lines
    assert {line["study_id"] for line in lines} <= {f"CXR{number}" for number in range(1, 9)}
    card = next(results.glob("release/default/README.md"), None) or next(results.glob("release/**/README.md"))
    assert "report text: `section_content`" in card.read_text(encoding="utf-8")
    for path in card.parent.rglob("*.parquet"):
        assert "section_content" not in pl.read_parquet_schema(path)
    package = json.dumps([path.read_text(encoding="utf-8") for path in card.parent.rglob("*.json")])
    for text in {line["section_content"] for line in lines}:
        assert json.dumps(text)[1:60] not in package
