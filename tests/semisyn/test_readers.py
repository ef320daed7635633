"""Readers: Table 7, agreement and d' by hand; pages on which nothing tells a generated image from a real one."""

import csv
from pathlib import Path
from statistics import NormalDist

import cv2
import numpy as np
import polars as pl
import pytest

from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.hdf5 import ShardWriter
from cxr.base.review_units import REVIEW_UNITS
from cxr.base.tables import read_table, write_table
from cxr.reporting.review import unit_pages
from cxr.reporting.review.page import read_form
from cxr.semisyn.readers import reading
from cxr.workflow import settings
from cxr.workflow.settings import SettingsError
from review_cases import cells

PAGES = {"experts": ["A", "B", "C"], "form": "readers", "seed": 1, "fewer": "draw fewer"}
ANSWERS_OPTIONS = {"form": "readers", "setting": "semisyn.readers.sheets"}
BOOTSTRAP = {"replicates": 200, "level": 0.95, "seed": 1}


def judged(number: int) -> pl.DataFrame:
    """Units whose pictures differ much in size: the later, the more noise."""
    draw = np.random.default_rng(1)
    rows = []
    for at in range(number):
        picture = np.full((64, 64), 90, np.uint8) + draw.integers(0, 1 + 4 * at, (64, 64)).astype(np.uint8)
        png = cv2.imencode(".png", picture)[1].tobytes()
        rows.append((f"secret-{at}", png, None, "Read this X-ray.", "", [], "", "", None, True))
    return pl.DataFrame(rows, schema=schema(REVIEW_UNITS), orient="row")


def make_pages(folder: Path, number: int = 6) -> list[Path]:
    write_table(folder / "units.parquet", judged(number), REVIEW_UNITS)
    pages = [folder / f"page_{expert}.html" for expert in PAGES["experts"]]
    where = {"units": str(folder / "units.parquet"), "items_table": str(folder / "items.parquet")}
    unit_pages.run_pages(pages=list(map(str, pages)), **PAGES, **where)
    return pages


def test_a_blind_page_tells_nothing_of_a_source(tmp_path):
    for page in make_pages(tmp_path):
        text = page.read_text(encoding="utf-8")
        assert "secret" not in text
        blocks = [part.partition(">")[2].partition("</script>")[0] for part in text.split('id="picture-')[1:]]
        assert len(blocks) == 6
        assert len({len(block) for block in blocks}) == 1  # padded to one length
        assert len({len(block.strip()) for block in blocks}) > 3
    items = read_table(tmp_path / "items.parquet")
    orders = [part["unit"].to_list() for _, part in items.group_by("expert", maintain_order=True)]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len(set(map(tuple, orders))) == 3


def fill(folder: Path, items: pl.DataFrame, said: dict[str, tuple[str, str]]) -> list[str]:
    paths = []
    for (expert,), part in items.group_by("expert", maintain_order=True):
        paths.append(folder / f"readers_{expert}.csv")
        with open(paths[-1], "w", newline="", encoding="utf-8-sig") as file:
            writer = csv.writer(file)
            writer.writerow(read_form("readers").columns)
            for row in part.iter_rows(named=True):
                writer.writerow([row["item"], *said[row["unit"]], "", 3, row["page"]])
    return list(map(str, paths))


def test_filled_sheets_become_answers_of_units(tmp_path):
    make_pages(tmp_path)
    items = read_table(tmp_path / "items.parquet")
    said = {f"secret-{at}": ("real" if at % 2 else "generated", "edema" if at < 3 else "none") for at in range(6)}
    sheets = fill(tmp_path, items, said)
    where = {"items_table": str(tmp_path / "items.parquet"), "answers": str(tmp_path / "answers.parquet")}
    unit_pages.run_answers(sheets=sheets, **ANSWERS_OPTIONS, **where)
    table = read_table(tmp_path / "answers.parquet")
    assert len(table) == 3 * 6 * 2
    for unit, (origin, finding) in said.items():
        of = table.filter(pl.col("unit") == unit)
        assert of.filter(pl.col("question") == "origin")["answer"].to_list() == [origin] * 3
        assert of.filter(pl.col("question") == "finding")["answer"].to_list() == [finding] * 3
    with pytest.raises(UserError, match=r"semisyn\.readers\.sheets has no sheet of expert C"):
        unit_pages.run_answers(sheets=sheets[:2], **ANSWERS_OPTIONS, **where)
    Path(sheets[0]).write_text(Path(sheets[0]).read_text(encoding="utf-8-sig").replace(",edema,", ",oedema,"))
    with pytest.raises(UserError, match=r"column finding: 'oedema' is neither 'atelectasis' nor"):
        unit_pages.run_answers(sheets=sheets, **ANSWERS_OPTIONS, **where)


UNITS = pl.DataFrame(
    {
        "unit": ["g1", "g2", "r1", "r2"],
        "source": ["generated", "generated", "real", "real"],
        "finding": ["edema", "effusion", "edema", "edema"],
    }
)
ANSWERS = {  # unit: what readers A and B said
    "g1": [("generated", "edema"), ("real", "opacity")],
    "g2": [("generated", "effusion"), ("generated", "effusion")],
    "r1": [("real", "none"), ("real", "edema")],
    "r2": [("generated", "edema"), ("real", "edema")],
}


@pytest.fixture(scope="module")
def read() -> pl.DataFrame:
    rows = [
        (unit, expert, question, value)
        for unit, both in ANSWERS.items()
        for expert, values in zip("AB", both, strict=True)
        for question, value in zip(("origin", "finding"), values, strict=True)
    ]
    answers = pl.DataFrame(rows, schema=["unit", "expert", "question", "answer"], orient="row")
    return reading.count_readings(UNITS, answers)


def test_readings_by_hand(read):
    assert read.rows() == [
        ("g1", "generated", "edema", 2, 1, 1), ("g2", "generated", "effusion", 2, 0, 2),
        ("r1", "real", "edema", 2, 2, 1), ("r2", "real", "edema", 2, 1, 2),
    ]  # fmt: skip


def test_table_7_by_hand(read):
    printed = {"generated_as_real": [0.1, 0.5, 0.3, 0.4, 0.37, 0.47, 0.4, 0.36]}
    table = reading.make_table7(read, printed, **BOOTSTRAP)
    edema = cells(table, source="generated", finding="edema")
    assert (edema["images"], edema["answers"], edema["as_real"], edema["with_finding"]) == (1, 2, 50.0, 50.0)
    assert (edema["as_real_low"], edema["as_real_high"]) == (50.0, 50.0)  # one image has no spread
    assert edema["as_real_paper"] == 40.0
    mean = cells(table, source="real", finding="mean")
    assert (mean["as_real"], mean["with_finding"]) == (75.0, 75.0)
    assert (mean["as_real_low"], mean["as_real_high"]) == (50.0, 100.0)
    empty = cells(table, source="real", finding="pneumothorax")
    assert (empty["images"], empty["as_real"], empty["as_real_low"]) == (0, None, None)


def test_the_form_has_the_users_findings_and_labels():
    question = read_form("readers", {"finding": {"edema": "Oedema", "nodule": "Nodule"}}).questions[1]
    told = {choice["value"]: (choice["label"], choice["key"]) for choice in question["choices"]}
    assert told["edema"] == ("Oedema", "4")
    # a: the first letter that neither the page nor another answer uses
    assert told["nodule"] == ("Nodule", "a")
    assert list(told)[-2:] == ["other", "nodule"]
    assert len({key for _, key in told.values()}) == len(told)


def test_a_page_and_its_sheet_know_the_users_findings(tmp_path):
    write_table(tmp_path / "units.parquet", judged(1), REVIEW_UNITS)
    named = {"finding": {"nodule": "Rundherd"}}
    where = {"units": str(tmp_path / "units.parquet"), "items_table": str(tmp_path / "items.parquet")}
    options = PAGES | {"experts": ["A"], "label_overrides": named}
    unit_pages.run_pages(pages=[str(tmp_path / "a.html")], **options, **where)
    assert "Rundherd" in (tmp_path / "a.html").read_text(encoding="utf-8")
    sheets = fill(tmp_path, read_table(tmp_path / "items.parquet"), {"secret-0": ("real", "nodule")})
    out = {"items_table": where["items_table"], "answers": str(tmp_path / "answers.parquet")}
    unit_pages.run_answers(sheets=sheets, **ANSWERS_OPTIONS, label_overrides=named, **out)
    assert read_table(out["answers"]).filter(question="finding")["answer"].to_list() == ["nodule"]
    with pytest.raises(UserError, match="'nodule' is neither"):
        unit_pages.run_answers(sheets=sheets, **ANSWERS_OPTIONS, **out)


def test_a_finding_of_the_users_own_has_its_rows():
    units = pl.DataFrame({"unit": ["g1", "g2"], "source": ["generated"] * 2, "finding": ["nodule", "edema"]})
    said = [("g1", "origin", "real"), ("g1", "finding", "nodule"), ("g2", "origin", "real"), ("g2", "finding", "other")]
    rows = [(unit, "A", question, value) for unit, question, value in said]
    read = reading.count_readings(
        units, pl.DataFrame(rows, schema=["unit", "expert", "question", "answer"], orient="row")
    )
    assert dict(read.select("finding", "with_finding").rows()) == {"nodule": 1, "edema": 0}
    table = reading.make_table7(read, {"generated_as_real": [0.5] * 8}, **BOOTSTRAP)
    row = cells(table, source="generated", finding="nodule")
    assert (row["with_finding"], row["as_real_paper"]) == (100.0, None)
    assert cells(reading.agreement_table(read, 1, **BOOTSTRAP), finding="nodule", measure="as_real")["images"] == 1


def test_agreement_and_d_prime_by_hand(read):
    table = reading.agreement_table(read, 2, **BOOTSTRAP)
    row = cells(table, finding="all", measure="as_real")
    # g2 and r1 are agreed on; yes answers 4 of 8, so chance is 1/2
    assert (row["images"], row["percent"], row["kappa"], row["ac1"]) == (4, 50.0, 0.0, 0.0)
    z = NormalDist().inv_cdf
    assert row["d_prime"] == pytest.approx(z(3.5 / 5) - z(1.5 / 5), abs=1e-4)
    assert row["d_prime_low"] <= row["d_prime"] <= row["d_prime_high"]
    assert cells(table, finding="edema", measure="with_finding")["d_prime"] is None


def test_readers_who_cannot_tell_have_no_d_prime():
    """Both kinds called real with the same chance: the interval holds 0 in most draws."""
    draw = np.random.default_rng(3)
    held = 0
    for _ in range(40):
        said = draw.binomial(3, 0.6, 140)
        units = [f"u{number}" for number in range(140)]
        sources = ["generated", "real"] * 70
        rows = zip(units, sources, ["edema"] * 140, [3] * 140, said.tolist(), [0] * 140, strict=True)
        table = pl.DataFrame(list(rows), schema=reading.READINGS, orient="row")
        _, low, high = reading.d_prime(table, **BOOTSTRAP)
        held += low <= 0 <= high
    assert held >= 34


def shard(path: Path, names: list[str], level: int) -> str:
    with ShardWriter(path, pictures=("image",)) as writer:
        for number, name in enumerate(sorted(names)):
            writer.append(name, image=np.full((64, 64), level + number, np.uint8))
    return str(path)


def test_the_images_are_fresh_ones_and_as_many_real_ones(tmp_path):
    jobs = [(f"{finding}-{number:06d}", finding, f"i{number}", number < 4) for finding in ("edema", "effusion")
            for number in range(10)]  # fmt: skip
    columns = {"job_id": pl.String, "finding": pl.String, "image_id": pl.String, "trial": pl.Boolean}
    plan = pl.DataFrame(jobs, schema=columns, orient="row")
    write_table(tmp_path / "plan.parquet", plan)
    reference = tmp_path / "people.csv"
    lines = [f"i{number},{label},1,2,30,40" for number in range(10) for label in ("Edema", "Pleural effusion")]
    reference.write_text("image_id,class_name,x_min,y_min,x_max,y_max\n" + "\n".join([*lines, "far,Edema,1,2,3,4\n"]))
    told = {"name": "people", "format": "vindr", "path": str(reference), "image_id": "{stem}", "role": "test"}
    options = {"images": 3, "findings": ["edema", "effusion"], "reference": told | {"classes": {}}}
    # edema 5 could not be edited
    edited = shard(tmp_path / "edited.h5", [job for job, *_ in jobs if job != "edema-000005"], 100)
    frames = shard(tmp_path / "frames.h5", [f"i{number}" for number in range(10)], 10)
    where = {"plan": str(tmp_path / "plan.parquet"), "annotations": str(reference)}
    out = {"units": str(tmp_path / "units.parquet"), "page_units": str(tmp_path / "shown.parquet")}
    reading.run_units(edited=[edited], frames=[frames], **options, **where, **out)
    units, shown = read_table(out["units"]), read_table(out["page_units"])
    assert units.group_by("source", "finding").len()["len"].to_list() == [3] * 4
    generated = units.filter(pl.col("source") == "generated")
    barred = {job for job, _, _, trial in jobs if trial} | {"edema-000005"}
    assert not set(generated["job_id"]) & barred
    real = units.filter(pl.col("source") == "real")
    assert real["image_id"].n_unique() == 6  # an image with both findings is read once
    assert not {"edema", "generated", "i1"} & set("".join(shown["unit"]).split("-"))
    heads = {cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_GRAYSCALE)[0, 0] for png in shown["picture"]}
    assert len([level for level in heads if level >= 100]) == 6
    write_table(tmp_path / "plan.parquet", plan.with_columns(trial=pl.lit(True)))
    with pytest.raises(UserError, match=r"raise semisyn\.dataset\.per_finding above semisyn\.selection\.samples"):
        reading.run_units(edited=[edited], frames=[frames], **options, **where, **out)


def test_a_reference_that_is_not_there_is_refused():
    with pytest.raises(SettingsError, match=r"readers\.reference is 'people', but semisyn\.references has none"):
        settings.read({"semisyn": {"readers": {"reference": "people"}}})
