"""Scores of given predictions: references of several formats, roles, the tables, differences, and false claims."""

import numpy as np
import polars as pl
import pytest

from annotation_files import write_ms_cxr, write_nih, write_vindr
from cxr.annotations.regions import Annotation, Annotations
from cxr.base.errors import UserError
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.detection.paper_tables import DIFFERENCES, SCORES, read_paper_tables
from cxr.semisyn.detection.score_detections import DetectionOptions, run_scores
from cxr.semisyn.references import (
    PREDICTIONS,
    Reference,
    finding_by_label,
    map_patients,
    read_reference,
    refuse_two_roles,
)

LABELS = {"opacity": "Lung Opacity", "effusion": "Pleural Effusion", "pneumothorax": "Pneumothorax"}


def truth(seed: int = 1, images: int = 40) -> list[Annotation]:
    """Return the boxes of images of which every third has none; whole numbers, so that files keep them."""
    random, found = np.random.default_rng(seed), []
    for number in range(images):
        for finding in random.permutation(list(LABELS))[: [0, 1, 2][number % 3]]:
            low = random.integers(0, 300, 2)
            high = low + random.integers(60, 200, 2)
            found.append(Annotation(f"image{number:03d}", LABELS[str(finding)], (*map(float, low), *map(float, high))))
    return found


def read_rows(name: str = "people", kind: str = "coco", **more: object) -> dict:
    return {"name": name, "format": kind, "path": "", "image_id": "{stem}", "role": "test", "classes": {}} | more


def predicted(boxes: list[Annotation], seed: int, spread: float, images: int = 40) -> pl.DataFrame:
    """Return predictions near the true boxes, and as many that are anywhere."""
    random, rows = np.random.default_rng(seed), []
    names = {label: finding for finding, label in LABELS.items()}
    for one in boxes:
        box = np.array(one.box) + random.normal(0, spread, 4)
        rows.append((one.image, names[one.label], float(random.beta(5, 3)), *box))
        low = random.uniform(0, 300, 2)
        rows.append(
            (f"image{random.integers(images):03d}", names[one.label], float(random.beta(3, 5)), *low, *(low + 90))
        )
    return pl.DataFrame(rows, schema={name: column.kind for name, column in PREDICTIONS.items()}, orient="row")


def options(references: list[dict], runs: list, **more: object) -> DetectionOptions:
    plain = {
        "findings": [*FINDINGS],
        "seed": 3,
        "against": "real",
        "replicates": 200,
    }
    return DetectionOptions(**plain | {"runs": runs, "references": references} | more)


def scored(tmp_path, tables: dict[tuple[str, int], pl.DataFrame], reference: dict, **more: object) -> dict:
    """Run the stage on predictions of one reference; return its tables by name."""
    paths = []
    for (run, seed), table in tables.items():
        paths.append(str(tmp_path / f"{run}.{seed}.parquet"))
        write_table(paths[-1], table)
    out = {name: str(tmp_path / f"{name}.tsv") for name in ("scores", "differences", "table1", "table2", "table4")}
    patients = tmp_path / "images.csv"
    pl.DataFrame(
        {"image_id": [f"image{n:03d}" for n in range(40)], "subject_id": [n // 2 for n in range(40)]}
    ).write_csv(patients)
    runs = [[run, seed, reference["name"]] for run, seed in tables]
    run_scores(predictions=paths, patients=[str(patients)], **out, options=options([reference], runs, **more))
    return {name: read_table(path) for name, path in out.items()}


@pytest.fixture
def people(tmp_path):
    boxes = truth()
    path = tmp_path / "ms_cxr.csv"
    write_ms_cxr(path, Annotations(boxes, set()))
    return boxes, read_rows("mscxr", "ms_cxr", path=str(path))


def test_the_tables(tmp_path, people):
    boxes, reference = people
    tables = {("real", 0): predicted(boxes, 1, 40), ("real", 1): predicted(boxes, 2, 40),
              ("more", 0): predicted(boxes, 3, 10), ("more", 1): predicted(boxes, 4, 10)}  # fmt: skip
    found = scored(tmp_path, tables, reference, synthetic={"more": 7000}, prior_seen=["mscxr"])
    scores = found["scores"]
    assert scores.columns == list(SCORES)
    ours = scores.filter(pl.col("source") == "ours")
    assert set(ours["prior_seen_reference"]) == {True}
    mean = {
        (run, seed): value
        for run, seed, value in ours.filter(pl.col("metric") == "map1070").select("run", "seed", "value").iter_rows()
    }
    assert mean["more", None] == pytest.approx((mean["more", 0] + mean["more", 1]) / 2)
    each = ours.filter(pl.col("run") == "more", pl.col("seed") == 0, pl.col("metric") == "ap1070")
    assert mean["more", 0] == pytest.approx(each["value"].mean())
    assert sorted(each["finding"]) == sorted(LABELS)
    assert each["boxes"].sum() == len(boxes)
    row = ours.filter(pl.col("metric") == "map1070", pl.col("run") == "more", pl.col("seed").is_null()).row(
        0, named=True
    )
    # 40 images, of which every third has no box and so no row in this format
    assert (row["images"], row["patients"]) == (26, len({int(one.image[5:]) // 2 for one in boxes}))
    assert row["low"] < row["value"] < row["high"]
    (gap,) = found["differences"].filter(pl.col("finding") == "mean").iter_rows(named=True)
    assert list(gap) == list(DIFFERENCES)
    assert gap["difference"] == pytest.approx(row["value"] - mean["real", None])
    assert gap["low"] > 0
    assert (gap["share_below_zero"], gap["significant"], gap["seeds"]) == (0.0, True, 2)
    assert gap["holm"] == pytest.approx(1 / 201)
    assert gap["paper_p_random_100"] < 1e-6


def test_the_paper_s_rows_stand_below_ours(tmp_path, people):
    boxes, reference = people
    found = scored(tmp_path, {("real", 0): predicted(boxes, 1, 10)}, reference)
    first, second, fourth = (found[name] for name in ("table1", "table2", "table4"))
    assert first["source"].to_list() == ["ours"] + ["paper"] * 16
    assert second["source"].to_list() == ["ours"] + ["paper"] * 8
    assert fourth["source"].to_list() == ["paper"] * 8
    assert second["edema"][0] is None or np.isnan(second["edema"][0])
    ours = found["scores"].filter(pl.col("source") == "ours", pl.col("seed").is_null())
    wanted = ours.filter(pl.col("finding") == "effusion", pl.col("metric") == "ap1070")["value"]
    assert second["effusion"][0] == pytest.approx(wanted[0])
    assert found["differences"].height == 0


def test_the_printed_means_are_those_of_the_printed_cells():
    for name in ("table2", "table4"):
        for of in read_paper_tables()[name]["rows"].values():
            for *cells, mean in of.values():
                known = [cell for cell in cells if cell is not None]
                assert mean == pytest.approx(np.mean(known), abs=0.11)
    for run, of in read_paper_tables()["table1"]["rows"].items():
        for size, (vindr_mean, _, mscxr_mean, _) in of.items():
            assert vindr_mean == read_paper_tables()["table4"]["rows"][run][size][-1]
            assert mscxr_mean == pytest.approx(read_paper_tables()["table2"]["rows"][run][size][-1], abs=0.01)


def test_right_boxes_score_all_and_shuffled_ones_below(tmp_path, people):
    boxes, reference = people
    right = predicted(boxes, 1, 0).filter(pl.col("confidence") > 0)[::2].with_columns(confidence=pl.lit(0.9))
    moved = right.with_columns(pl.col("x1", "y1", "x2", "y2").shift(1).fill_null(5.0))
    found = scored(tmp_path, {("real", 0): right, ("shuffled", 0): moved}, reference)
    values = dict(
        found["scores"].filter(pl.col("metric") == "map1070", pl.col("seed").is_null(), pl.col("source") == "ours")
        .select("run", "value").iter_rows()
    )  # fmt: skip
    assert values["real"] == pytest.approx(100)
    assert values["shuffled"] < 40
    (gap,) = found["differences"].filter(pl.col("finding") == "mean").iter_rows(named=True)
    assert gap["high"] < 0
    single = found["scores"].filter(pl.col("run") == "real", pl.col("finding") == "mean", pl.col("seed") == 0)
    assert dict(single.filter(pl.col("metric").str.starts_with("recall")).select("metric", "value").iter_rows()) == {
        "recall_quarter": 100, "recall_half": 100, "recall_1": 100, "recall_2": 100,
    }  # fmt: skip
    assert single.filter(pl.col("metric") == "map50_sample")["value"][0] == pytest.approx(100)


def test_one_law_is_no_difference(tmp_path, people):
    boxes, reference = people
    found = scored(tmp_path, {("real", 0): predicted(boxes, 1, 25), ("more", 0): predicted(boxes, 2, 25)}, reference)
    (gap,) = found["differences"].filter(pl.col("finding") == "mean").iter_rows(named=True)
    assert gap["low"] <= 0 <= gap["high"]
    assert not gap["significant"]


def test_images_without_boxes_count_where_the_format_tells_them(tmp_path):
    boxes, path = truth(), tmp_path / "vindr.csv"
    write_vindr(path, Annotations(boxes, {f"image{n:03d}" for n in range(40)}))
    reference = read_rows("vindr", "vindr", path=str(path))
    right = predicted(boxes, 1, 0)[::2].with_columns(confidence=pl.lit(0.5))
    empty = [name for name in (f"image{n:03d}" for n in range(40)) if name not in set(right["image_id"])]
    false = right.head(len(empty)).with_columns(image_id=pl.Series(empty), confidence=pl.lit(0.9))
    found = scored(tmp_path, {("real", 0): pl.concat([right, false])}, reference)
    row = found["scores"].filter(pl.col("metric") == "map1070", pl.col("seed") == 0).row(0, named=True)
    assert row["images"] == 40
    assert row["value"] < 95
    assert found["table4"]["source"].to_list() == ["ours"] + ["paper"] * 8


def test_boxes_of_several_readers_are_fused(tmp_path):
    path = tmp_path / "readers.csv"
    drawn = (("R1", (0.0, 0, 100, 100)), ("R2", (10.0, 0, 110, 100)), ("R3", (300.0, 300, 400, 400)))
    same = [Annotation("a", "Lung Opacity", box, reader=reader) for reader, box in drawn]
    write_vindr(path, Annotations(same, set()))
    held = read_reference(Reference(**read_rows("r", "vindr", path=str(path))))
    assert held.boxes.select("x1", "y1", "x2", "y2").rows() == [(5.0, 0.0, 105.0, 100.0), (300.0, 300.0, 400.0, 400.0)]


def test_labels_and_bad_rows(tmp_path):
    path = tmp_path / "nih.csv"
    rows = [
        Annotation("a.png", "Infiltrate", (0.0, 0, 10, 10)),
        Annotation("a.png", "Mass", (0.0, 0, 10, 10)),
        Annotation("b.png", "Pneumothorax", (5.0, 5, 5, 9)),
        Annotation("b.png", "Pneumothorax", (5.0, 5, 8, 9)),
    ]
    write_nih(path, Annotations(rows, set()))
    held = read_reference(Reference(**read_rows("n", "nih", path=str(path))))
    assert held.boxes.select("image_id", "finding").rows() == [("a", "opacity"), ("b", "pneumothorax")]
    assert dict(held.excluded) == {"no finding for Mass": 1, "no area": 1}
    mapped = read_reference(Reference(**read_rows("n", "nih", path=str(path), classes={"mass": "consolidation"})))
    assert set(mapped.boxes["finding"]) == {"opacity", "consolidation", "pneumothorax"}
    assert finding_by_label("vindr", {})["pleural effusion"] == "effusion"
    write_nih(path, Annotations(rows[1:2], set()))
    with pytest.raises(
        UserError, match=r"no box of any finding: map its labels \(Mass\) in semisyn.references.n.classes"
    ):
        read_reference(Reference(**read_rows("n", "nih", path=str(path))))


def test_no_patient_is_in_two_roles(tmp_path, people):
    boxes, reference = people
    pl.DataFrame({"image_id": ["a", "b"], "subject_id": [7, 7]}).write_parquet(tmp_path / "patients.parquet")
    patient = map_patients(["a", "b", "c"], str(tmp_path / "patients.parquet"))
    assert patient == {"a": "7", "b": "7", "c": "c"}
    roles = {"one": "train", "two": "test"}
    refuse_two_roles({"one": ["a"], "two": ["c"]}, roles, patient)
    with pytest.raises(UserError, match=r"in_two_roles: a patient of one \(train\) is also in two \(test\)"):
        refuse_two_roles({"one": ["a"], "two": ["b"]}, roles, patient)
    refuse_two_roles({"one": ["a"], "two": ["b"]}, {"one": "test", "two": "test"}, patient)
    with pytest.raises(UserError, match="whose role is train"):
        scored(tmp_path, {("real", 0): predicted(boxes, 1, 9)}, reference | {"role": "train"})


def test_wrong_predictions_stop_with_the_column(tmp_path, people):
    boxes, reference = people
    table = predicted(boxes, 1, 9)
    with pytest.raises(UserError, match="lacks the column confidence"):
        scored(tmp_path, {("real", 0): table.drop("confidence")}, reference)
    with pytest.raises(UserError, match="1 rows where a number"):
        scored(tmp_path, {("real", 0): pl.concat([table, table[:1].with_columns(x1=pl.lit(np.nan))])}, reference)


def test_the_same_bytes_whatever_the_order_of_rows(tmp_path, people):
    boxes, reference = people
    table = predicted(boxes, 1, 20)
    read_rows = []
    for folder, rows in (("one", table), ("two", table.sort("image_id", maintain_order=True))):
        (tmp_path / folder).mkdir()
        scored(tmp_path / folder, {("real", 0): rows}, reference)
        read_rows.append((tmp_path / folder / "scores.tsv").read_bytes())
    assert read_rows[0] == read_rows[1]
