"""The dataset: what became of every job, sizes, conventions, and exports that other libraries read."""

import json
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest
import yaml
from PIL import Image

import nodules
from cxr.annotations.regions import read_annotations
from cxr.base.errors import StoreError
from cxr.base.tables import read_table
from cxr.geometry.affine import points_to_original
from cxr.reporting.release.withheld import Withheld
from cxr.semisyn import shared
from cxr.semisyn.dataset import datasheet, export
from cxr.semisyn.dataset.export import ExportOptions
from cxr.semisyn.dataset.job_tables import SYNTHETIC, read_conventions, rescale_box
from cxr.semisyn.shared import images_per_finding, yolo_line
from cxr.workflow import settings
from cxr.workflow.plan import Plan
from nodules import NODULE
from semisyn_jobs import AFFINE, FINDINGS, SHAPE, Job, edited_of, frame_of, jobs, original_of, tables, write
from xrv_wheel import xrv_table

LABELS = dict(zip(FINDINGS, ("Atelectasis", "Large heart", "Pleural Effusion", "Pneumothorax"), strict=True))
"""What the findings are called: a heart as a user's file may call it."""
CLOSE = 1e-4
"""Largest move of an edge in a round trip, px."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, dict, dict]:
    """Jobs with every outcome, and the tables made of them. Tests must not write there."""
    folder = tmp_path_factory.mktemp("jobs")
    given = write(folder)
    return folder, given, tables(folder, given)


def options(**changed) -> ExportOptions:
    plain = {
        "findings": FINDINGS,
        "labels": LABELS,
        "kind": "conditioning",
        "target": "source",
        "pixels": "frame",
        "withhold": [],
    }
    return ExportOptions(**(plain | {"salt": "", "size": 16, "format": "coco"} | changed))


def exported(made, folder: Path, **changed) -> Path:
    """Run an export; return its folder."""
    _, given, written = made
    sheet = folder / "sheet.md"
    sheet.parent.mkdir(parents=True, exist_ok=True)
    sheet.write_text("Told.\n")
    inputs = {name: given[name] for name in ("edited", "frames", "cohort")}
    inputs |= {name: written[name] for name in ("images", "boxes")}
    export.run(**inputs, sheet=str(sheet), folder=folder / "out", options=options(**changed))
    return folder / "out"


def expected(finding: str | None = None) -> dict[str, list[tuple[float, ...]]]:
    """{job: its boxes} of the first four edited jobs of each finding."""
    found = {}
    for name in FINDINGS:
        kept = [job for job in jobs() if job.finding == name and not job.stage][:4]
        found |= {job.name: job.boxes() for job in kept if finding in (None, name)}
    return found


# -------------------------------------------------------------------------------------------- conservation


def test_every_job_ends_once(made):
    rows = {row["finding"]: row for row in read_table(made[2]["conservation"]).to_dicts()}
    names = ("requested", "planned", "not_placed", "placed", "not_edited", "edited", "spare", "exported")
    assert {finding: tuple(row[name] for name in names) for finding, row in rows.items()} == {
        "atelectasis": (4, 5, 0, 5, 0, 5, 1, 4),
        "cardiomegaly": (4, 5, 0, 5, 1, 4, 0, 4),
        "effusion": (4, 5, 1, 4, 1, 3, 0, 3),
        "pneumothorax": (4, 5, 0, 5, 0, 5, 1, 4),
        "all": (16, 20, 1, 19, 2, 17, 2, 15),
    }
    assert {row["balanced"] for row in rows.values()} == {"yes"}
    table = read_table(made[2]["jobs"])
    stops = {row["job_id"]: (row["stage"], row["reason"]) for row in table.to_dicts() if not row["exported"]}
    assert stops == {
        "atelectasis-000004": ("semisyn_dataset", "spare"),
        "pneumothorax-000004": ("semisyn_dataset", "spare"),
        "cardiomegaly-000001": ("semisyn_editing", "leaked"),
        "effusion-000000": ("semisyn_placement", "no_room"),
        "effusion-000002": ("semisyn_editing", "leaked"),
    }
    assert shared.describe_shortfalls(list(rows.values())) == [
        "semisyn: effusion has 3 of 4 images: of 5 planned jobs, 1 had no room for a box and 1 were refused after the "
        "edit"
    ]


def test_a_finding_that_is_short_of_images_says_so_at_the_end(made, capsys):
    shared.print_shortfalls(Path(made[2]["conservation"]))
    assert capsys.readouterr().err.startswith("cxr-ils: semisyn: effusion has 3 of 4 images: ")
    shared.print_shortfalls(Path("nowhere.tsv"))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("lost", ["placement", "editing", "twice", "strange"])
def test_a_job_lost_or_counted_twice_stops(tmp_path, lost):
    given = write(tmp_path)
    if lost == "placement":
        given["not_placed"] = str(tmp_path / "none.parquet")
        read_table(given["not_edited"][0]).clear().write_parquet(given["not_placed"])
    elif lost == "editing":
        given["not_edited"] = given["not_edited"][-1:]
    elif lost == "twice":
        given["edited"] = [*given["edited"], given["edited"][0]]
    else:
        given["plan"] = str(tmp_path / "less.parquet")
        read_table(tmp_path / "results/semisyn/placement/plan.parquet").head(7).write_parquet(given["plan"])
    with pytest.raises(StoreError, match=r"different runs|was also edited by"):
        tables(tmp_path, given)


def test_the_tables_do_not_depend_on_the_order_of_files(made, tmp_path):
    _, given, written = made
    turned = {name: paths[::-1] if isinstance(paths, list) else paths for name, paths in given.items()}
    again = tables(tmp_path, turned)
    for name, path in written.items():
        assert Path(path).read_bytes() == Path(again[name]).read_bytes(), name


def test_sizes_are_nested_and_take_the_first_edited_ones(made):
    images = read_table(made[2]["images"])
    ranks = {row["job_id"]: row["rank"] for row in images.to_dicts()}
    assert [ranks[f"cardiomegaly-00000{index}"] for index in (0, 2, 3, 4)] == [0, 1, 2, 3]
    assert ranks["effusion-000001"] == 0
    boxes, edited = read_table(made[2]["boxes"]), made[1]["edited"]
    taken = [export.ImageSource(images, boxes, edited, [], [], options(size=size)) for size in (4, 8, 16)]
    picked = [{picture.facts["job_id"] for picture in source} for source in taken]
    assert [len(names) for names in picked] == [4, 8, 15]
    assert picked[0] < picked[1] < picked[2]
    parts = [export.ImageSource(images, boxes, edited, [], [], options(size=size)) for size in ("fifth", "half", "all")]
    assert [{picture.facts["job_id"] for picture in source} for source in parts] == picked


def test_a_patients_images_share_a_folder_and_val_is_of_train_only_without_a_split(tmp_path):
    given = write(tmp_path, [Job("effusion", index, image=index // 2) for index in range(20)], asked=20)
    images = read_table(tables(tmp_path, given)["images"])
    subsets = images.group_by("subject_id").agg(pl.col("subset").unique())["subset"].to_list()
    assert sorted(map(tuple, subsets)) == [("train",)] * 7 + [("val",)] * 3
    given = write(
        tmp_path / "own", [Job("effusion", index, image=index) for index in range(9)], ("train", "validate", "test"), 9
    )
    images = read_table(tables(tmp_path / "own", given)["images"])
    assert set(images.select("split", "subset").iter_rows()) == {
        ("train", "train"),
        ("validate", "val"),
        ("test", "test"),
    }


@pytest.mark.parametrize("num_patients", [1, 2, 4, 30])
def test_a_small_pool_has_a_validation_patient_where_it_has_two(tmp_path, num_patients):
    """5 % of two to nine patients is none."""
    given = write(tmp_path, [Job("effusion", number, image=number) for number in range(num_patients)], asked=30)
    written = tables(tmp_path, given, validation=0.05)
    subsets = read_table(written["images"])["subset"].to_list()
    assert subsets.count("val") == {1: 0, 30: 2}.get(num_patients, 1)
    assert subsets.count("train") == num_patients - subsets.count("val")
    folder = exported((tmp_path, given, written), tmp_path, format="yolo", size="all")
    described = yaml.safe_load((folder / "data.yaml").read_text())
    assert described["val"] == ("images/train" if num_patients == 1 else "images/val")
    assert "test" not in described
    for subset in ("train", "val"):
        assert list((folder / described[subset]).glob("*.png"))
    assert sorted(path.name for path in (folder / "images").iterdir()) == sorted(set(subsets))
    readme = " ".join((folder / "README.md").read_text().split())
    assert "the absolute path of `data.yaml`" in readme
    assert f"# SemiSynCXR, {num_patients} images" in readme


def test_an_empty_plan_gives_empty_tables(tmp_path):
    written = tables(tmp_path, write(tmp_path, []))
    assert read_table(written["images"]).is_empty()
    assert read_table(written["conservation"])["exported"].to_list() == [0] * 5
    assert read_table(written["conservation"])["requested"].to_list() == [0] * 5


# --------------------------------------------------------------------------------------------- conventions


def test_boxes_of_other_readers():
    """By hand, on a square picture that fills its frame."""
    box, whole = np.array([100.0, 200.0, 200.0, 300.0]), np.array([0.0, 0.0, 512.0, 512.0])
    affine = np.array([[2.0, 0, 0], [0, 2.0, 0]])
    found = {
        name: rescale_box(box, name, "vindr", affine, whole).tolist() for name in ("atelectasis", "effusion", "opacity")
    }
    assert found["atelectasis"] == pytest.approx([100, 250 - 60.5, 200, 250 + 60.5])
    assert found["effusion"] == pytest.approx([100, 300 - 146, 200, 300])
    assert found["opacity"] == box.tolist()
    heart = rescale_box(box, "cardiomegaly", "mimic", affine, whole)
    assert heart == pytest.approx([100, 264 - 32, 200, 264 + 32])
    assert rescale_box(box, "cardiomegaly", "source", affine, whole).tolist() == box.tolist()
    # clipped to the picture, which here ends at y = 180
    assert rescale_box(box, "effusion", "vindr", affine, np.array([0.0, 180.0, 512.0, 512.0]))[1] == 180
    # a stretched frame: the ratio is of the original's pixels
    wide = rescale_box(box, "atelectasis", "vindr", np.array([[4.0, 0, 0], [0, 2.0, 0]]), whole)
    assert wide[3] - wide[1] == pytest.approx(242)


def test_the_ratios_are_near_those_of_the_public_table():
    """VinBigData's means: 1.216, 1.440, .370 (each box once, by its reader)."""
    table = xrv_table("vinbigdata-train.csv.gz", infer_schema_length=None).drop_nulls("x_min")
    ratio = (pl.col("y_max") - pl.col("y_min")) / (pl.col("x_max") - pl.col("x_min"))
    means = dict(table.group_by("class_name").agg(ratio.mean().alias("mean")).iter_rows())
    names = {"atelectasis": "Atelectasis", "effusion": "Pleural effusion", "cardiomegaly": "Cardiomegaly"}
    for finding, name in names.items():
        assert read_conventions()["vindr"][finding]["height_over_width"] == pytest.approx(means[name], abs=0.03), (
            finding
        )


def test_the_table_has_every_box_in_every_kind_and_convention(made):
    table = read_table(made[2]["boxes"])
    jobs_of = expected()
    boxes = sum(map(len, jobs_of.values()))
    assert len(table) == boxes * 2 * 3
    assert set(table["says"]) == {SYNTHETIC}
    plain = table.filter((pl.col("kind") == "conditioning") & (pl.col("target") == "source"))
    found: dict[str, list] = {}
    for row in plain.sort("job_id", "number").to_dicts():
        found.setdefault(row["job_id"], []).append(tuple(row[name] for name in ("x1", "y1", "x2", "y2")))
    assert found == jobs_of
    assert set(table["zone"]) == {"base"}


def test_counts_by_side_and_zone(made):
    assert read_table(made[2]["counts"]).rows() == [
        ("atelectasis", "right", "base", 4), ("cardiomegaly", "", "base", 4), ("effusion", "both", "base", 3),
        ("pneumothorax", "left", "base", 4),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------- exports


def test_yolo(made, tmp_path):
    folder = exported(made, tmp_path, format="yolo")
    told = yaml.safe_load((folder / "data.yaml").read_text())
    assert told["names"] == dict(enumerate(LABELS.values()))
    assert (told["train"], told["val"]) == ("images/train", "images/val")
    labels = {path.stem: path for path in folder.glob("labels/*/*.txt")}
    assert labels.keys() == expected().keys() == {path.stem for path in folder.glob("images/*/*.png")}
    assert {path.parent.name for path in labels.values()} == {"train", "val"}
    for name, boxes in expected().items():
        rows = [list(map(float, line.split())) for line in labels[name].read_text().splitlines()]
        assert [FINDINGS[int(row[0])] for row in rows] == [name.rpartition("-")[0]] * len(boxes)
        for (_, cx, cy, w, h), box in zip(rows, boxes, strict=True):
            corners = np.array([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]) * 512
            assert corners == pytest.approx(box, abs=CLOSE)


def test_yolo_clips_to_the_picture():
    assert yolo_line((-10.0, 5.0, 600.0, 512.0), 3, (512, 512)) == "3 0.50000000 0.50488281 1.00000000 0.99023438\n"


def test_pictures_are_the_edited_frames_and_say_so(made, tmp_path):
    folder = exported(made, tmp_path, format="yolo")
    for path in folder.glob("images/*/*.png"):
        job = next(one for one in jobs() if one.name == path.stem)
        with Image.open(path) as image:
            assert image.mode == "L"
            assert image.text["Description"] == f"synthetic finding: {job.finding}, job {job.name}"
            assert np.array_equal(np.asarray(image), edited_of(job)[0])


def test_coco_in_pycocotools_and_in_our_own_reader(made, tmp_path):
    tools = pytest.importorskip("pycocotools.coco")
    folder = exported(made, tmp_path)
    found = {}
    for path in sorted(folder.glob("instances_*.json")):
        held = tools.COCO(str(path))
        for image in held.imgs.values():
            name = Path(image["file_name"]).stem
            assert image["semisyn"]["says"] == SYNTHETIC
            own = held.loadAnns(held.getAnnIds(imgIds=image["id"]))
            found[name] = [(x, y, x + w, y + h) for x, y, w, h in (one["bbox"] for one in own)]
            lesion = edited_of(next(job for job in jobs() if job.name == name))[1]
            drawn = [held.annToMask(one) > 0 for one in own]
            assert np.array_equal(np.logical_or.reduce(drawn), lesion)
            assert sum(int(mask.sum()) for mask in drawn) == lesion.sum()
            assert {held.cats[one["category_id"]]["name"] for one in own} == {LABELS[name.rpartition("-")[0]]}
            assert (folder / "images" / path.stem.rpartition("_")[2] / image["file_name"]).is_file()
    assert found.keys() == expected().keys()
    for name, boxes in expected().items():
        assert np.array(found[name]) == pytest.approx(np.array(boxes), abs=CLOSE)
    for path in folder.glob("instances_*.json"):
        regions, seen = read_annotations("agreement.references.semisyn", path, "coco")
        assert {Path(one.image).stem for one in regions} == {Path(name).stem for name in seen} <= expected().keys()
        for one in regions:
            assert min(np.abs(np.array(one.box) - box).max() for box in expected()[Path(one.image).stem]) <= CLOSE
            assert one.mask().any()
            assert one.label in FINDINGS


def test_a_lesion_of_two_boxes_is_shared_out_between_them():
    lesion = np.zeros((6, 10), bool)
    lesion[1:3, 1:9] = True
    right, left = export.split_lesion(lesion, [(0.0, 0.0, 4.0, 6.0), (6.0, 0.0, 10.0, 6.0)])
    assert (np.flatnonzero(right.any(axis=0)).tolist(), np.flatnonzero(left.any(axis=0)).tolist()) == (
        [1, 2, 3, 4], [5, 6, 7, 8],
    )  # fmt: skip


def test_hugging_face(made, tmp_path):
    datasets = pytest.importorskip("datasets")
    folder = exported(made, tmp_path / "hf", format="hf")
    held = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert set(held) == {"train", "validation"}
    rows = [row for part in held.values() for row in part]
    assert {row["job_id"] for row in rows} == expected().keys()
    assert {row["says"] for row in rows} == {SYNTHETIC}
    category = held["train"].features["objects"]["category"].feature
    for row in rows:
        assert np.array(row["objects"]["bbox"]) == pytest.approx(np.array(expected()[row["job_id"]]), abs=CLOSE)
        assert [FINDINGS[number] for number in row["objects"]["category"]] == [row["finding"]] * len(
            row["objects"]["bbox"]
        )
        job = next(one for one in jobs() if one.name == row["job_id"])
        assert np.array_equal(np.asarray(row["image"]), edited_of(job)[0])
    assert category.names == ["Atelectasis", "Large heart", "Pleural Effusion", "Pneumothorax"]


def test_ultralytics_reads_yolo(made, tmp_path):
    data = pytest.importorskip("ultralytics.data.dataset")
    folder = exported(made, tmp_path, format="yolo")
    told = yaml.safe_load((folder / "data.yaml").read_text())
    held = data.YOLODataset(img_path=str(folder / "images/train"), data=told, augment=False)
    assert len(held) == len(list(folder.glob("images/train/*.png")))
    for label in held.labels:
        boxes = np.array(expected()[Path(label["im_file"]).stem])
        wide = np.column_stack([(boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2,
                                boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]])  # fmt: skip
        assert label["bboxes"] * 512 == pytest.approx(wide, abs=1e-3)


def test_visible_boxes_and_other_conventions(made, tmp_path):
    folder = exported(made, tmp_path, kind="visible", target="vindr")
    held = [json.loads(path.read_text()) for path in folder.glob("instances_*.json")]
    names = {image["id"]: image["file_name"] for part in held for image in part["images"]}
    assert names
    for part in held:
        names = {image["id"]: Path(image["file_name"]).stem for image in part["images"]}
        for one in part["annotations"]:
            name = names[one["image_id"]]
            x, y, w, h = one["bbox"]
            (x1, _, x2, y2), *_ = [
                (box[0] + 5.25, box[1] + 5.25, box[2] - 5.25, box[3] - 5.25)
                for box in expected()[name] if abs(box[0] + 5.25 - x) < 1
            ]  # fmt: skip
            assert (x, x + w) == pytest.approx((x1, x2))
            if name.startswith("effusion"):
                assert (y + h, h / w) == pytest.approx((y2, 1.46))


def test_original_pixels_keep_their_detail_and_take_the_change(made, tmp_path):
    frames = {"window": "minmax", "percentiles": [0.5, 99.5], "burned_in": "keep"}
    folder = exported(made, tmp_path, format="yolo", pixels="original", frames=frames)
    job = next(one for one in jobs() if one.name == "atelectasis-000002")
    (path,) = folder.glob(f"images/*/{job.name}.png")
    with Image.open(path) as image:
        grey = np.asarray(image).astype(int)
    assert grey.shape == SHAPE
    source = original_of(job.image).astype(float)
    source = np.rint((source - source.min()) / (source.max() - source.min()) * 255)
    x1, y1, x2, y2 = points_to_original(np.array(job.boxes()).reshape(-1, 2), AFFINE).ravel()
    away = np.ones(SHAPE, bool)
    away[int(y1) - 4 : int(y2) + 4, int(x1) - 4 : int(x2) + 4] = False
    frame = frame_of(job.image).astype(int)
    edited = edited_of(job)[0].astype(int)
    assert (edited - frame)[edited != frame].mean() == pytest.approx(30, abs=1)
    assert np.abs(grey - source)[away].max() <= 1
    inside = (slice(int(y1) + 6, int(y2) - 6), slice(int(x1) + 6, int(x2) - 6))
    assert np.median((grey - source)[inside]) == pytest.approx(30, abs=1)
    label = next(folder.glob(f"labels/*/{job.name}.txt")).read_text().split()
    cx, cy, w, h = (float(cell) for cell in label[1:])
    corners = np.array([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]) * np.tile(SHAPE[::-1], 2)
    assert corners == pytest.approx((x1, y1, x2, y2), abs=CLOSE)


def test_what_is_withheld_is_in_no_export(made, tmp_path):
    salt = tmp_path / "key"
    salt.write_text("0123456789abcdef0123")
    same = Withheld(["ids"], str(salt))
    for kind in ("yolo", "coco", "hf"):
        folder = exported(made, tmp_path / kind, format=kind, withhold=["pixels", "ids"], salt=str(salt))
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert not [path for path in files if path.suffix == ".png"]
        held = b"".join(path.read_bytes() for path in files if path.suffix != ".parquet")
        held += b"".join(str(pl.read_parquet(path).to_dicts()).encode() for path in files if path.suffix == ".parquet")
        for name in ("film2", "s2", "p2"):
            assert f"'{name}'".encode() not in held
            assert f'"{name}"'.encode() not in held
        if kind != "yolo":
            assert same.publish_id("image_id", "film2").encode() in held
            assert same.publish_id("subject_id", "p2").encode() in held
    assert "image" not in pl.read_parquet_schema(next((tmp_path / "hf/out/data").glob("train-*.parquet")))


@pytest.mark.parametrize("kind", ["yolo", "coco", "hf"])
def test_an_export_is_the_same_bytes_again(made, tmp_path, kind):
    one, other = (exported(made, tmp_path / part, format=kind) for part in ("one", "other"))
    files = {path.relative_to(one): path.read_bytes() for path in one.rglob("*") if path.is_file()}
    assert files == {path.relative_to(other): path.read_bytes() for path in other.rglob("*") if path.is_file()}
    assert b"Told." in files[Path("README.md")]


def test_the_cohort_has_edited_films_their_sources_and_the_truth(made, tmp_path):
    _, given, written = made
    inputs = {name: given[name] for name in ("edited", "frames", "cohort", "healthy")}
    inputs |= {name: written[name] for name in ("images", "boxes")}
    export.run_cohort(**inputs, folder=tmp_path / "cohort", options=options())
    rows = read_table(tmp_path / "cohort/manifest.csv").to_dicts()
    assert len(rows) == 15 + 5
    assert len({row["study_id"] for row in rows}) == 20
    sources = [row for row in rows if row["says"] == "healthy source"]
    assert {row["image_id"] for row in sources} == {f"film{number}" for number in range(5)}
    assert {row["split"] for row in rows} == {"train"}
    for row in rows:
        grey = cv2.imread(str(tmp_path / "cohort" / row["image_path"]), cv2.IMREAD_UNCHANGED)
        wanted = [edited_of(job)[0] for job in jobs() if job.name == row["image_id"]]
        wanted = wanted or [frame_of(int(row["image_id"].removeprefix("film")))]
        assert np.array_equal(grey, wanted[0])
    told = next(row for row in rows if row["image_id"] == "effusion-000001")
    assert told["findings"] == "A effusion."
    regions, seen = read_annotations("k", tmp_path / "cohort/truth.json", "coco")
    assert len(seen) == 20
    assert {Path(one.image).stem for one in regions} == expected().keys()


def test_titles_of_the_sheet_are_the_labels(made, tmp_path, monkeypatch):
    _, given, written = made
    titles = []
    monkeypatch.setattr(datasheet, "draw_row", lambda *told: titles.append(told[3]) or np.zeros((3, 6, 3), np.uint8))
    inputs = {name: given[name] for name in ("edited", "frames", "cohort")}
    inputs |= {name: written[name] for name in ("images", "boxes")}
    datasheet.run_samples(**inputs, sheet=tmp_path / "sheet.jpg", options=options(format="sheet"))
    assert titles == [f"{LABELS[name]}: A {name}" for name in FINDINGS]


def test_the_plan_takes_the_labels_of_the_users_file(tmp_path):
    told = NODULE["findings"] | {"edema": {"label": "Oedema"}}
    path = nodules.written(tmp_path, NODULE | {"findings": told})
    given = {"findings_file": str(path), "findings": ["edema", "effusion", "nodule"]}
    plan = Plan({"semisyn": given}, []).semisyn
    assert plan.labels == {"edema": "Oedema", "effusion": "Pleural Effusion", "nodule": "Nodule"}
    assert plan.export_options["labels"] == plan.labels
    assert plan.form_labels == {"finding": {"edema": "Oedema", "nodule": "Nodule"}}
    assert Plan({}, []).semisyn.form_labels == {}


def test_the_datasheet_tells_what_must_be_known(made, tmp_path):
    _, _, written = made
    (tmp_path / "priors.yaml").write_text(yaml.safe_dump({"findings": {name: {"origin": "paper"} for name in LABELS}}))
    funnel = tmp_path / "funnel.tsv"
    funnel.write_text("criterion\tin\tout\treason\tpaper\nview PA\t9\t5\tnot_pa 4\t\n")
    datasheet.run(
        images=written["images"], funnel=str(funnel), conservation=written["conservation"], counts=written["counts"],
        priors=str(tmp_path / "priors.yaml"), sheet=tmp_path / "sheet.md",
        source="embedded", labels=LABELS,
    )  # fmt: skip
    text = (tmp_path / "sheet.md").read_text()
    assert "not findings of the patients" in " ".join(text.split())
    assert "| view PA | 9 | 5 | not_pa 4 |" in text
    assert "| effusion | both | base | 3 |" in text
    assert "research only" in text  # RadEdit's licence, whose engine made the pneumothoraces
    assert "Pleural Effusion: paper" in text
    assert "15 edited images of 5 healthy ones of 5 patients; one image was used up to 4 times" in " ".join(
        text.split()
    )
    assert "Circularity" in text


# ------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dataset": {"sizes": [7000, 7001]}}, "give multiples of 7"),
        ({"dataset": {"sizes": [70], "per_finding": 5}}, "up to 35"),
        ({"dataset": {"sizes": [14, 7]}}, "rising"),
        ({"dataset": {"target": "nih"}}, "semisyn.dataset.target is 'nih'"),
    ],
)
def test_wrong_settings_name_their_key(given, said):
    with pytest.raises(settings.SettingsError, match=said):
        settings.read({"semisyn": given})


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"cohort": {"source": "embedded"}}, ["fifth", "half", "all"]),
        ({"semisyn": {"dataset": {"per_finding": 5000}}}, ["fifth", "half", "all"]),
        ({"semisyn": {"findings": ["edema"], "dataset": {"sizes": [3, 6]}}}, [3, 6]),
    ],
)
def test_sizes_are_parts_or_numbers(given, sizes):
    assert Plan(given, []).semisyn.sizes == sizes


def test_parts_of_the_papers_dataset_are_its_sizes():
    assert [7 * images_per_finding(part, 5000, 7) for part in ("fifth", "half", "all")] == [7000, 17500, 35000]
    assert [images_per_finding(part, 2, 7) for part in ("fifth", "half", "all")] == [1, 1, 2]
    assert images_per_finding("14", 5, 7) == images_per_finding(14, 5, 7) == 2
