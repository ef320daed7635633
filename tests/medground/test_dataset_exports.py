"""T17: each export is read by the library it is for, and gives the same queries and boxes back."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.tables import read_lines, write_lines, write_table
from cxr.medground.dataset import export
from cxr.medground.stage_settings import DatasetSettings
from cxr.reporting.review.queries import AUDIT
from medground_data import make_queries_of, make_regions_of, read_source, regions_of, source_keys

FORMATS = ("messages", "sharegpt", "swift", "coco", "refcoco", "hf")


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "cells"
    read_source(folder, source_keys(kind="cells", domain="nuclei"), cells=14, name="cells")
    make_regions_of(folder)
    make_queries_of(folder, "cells")
    lines = list(read_lines(folder / "queries/00.jsonl"))
    for name in ("train", "validate", "test"):
        write_lines(folder / f"{name}.jsonl", [line for line in lines if line["split"] == name])
    return folder


def lines_of(folder: Path) -> dict[str, dict]:
    return {
        line["query_id"]: line
        for name in ("train", "validate", "test")
        for line in read_lines(folder / f"{name}.jsonl")
    }


def export_format(cells: Path, out: Path, name: str, audit: str = "", **more) -> Path:
    options = DatasetSettings(audited=bool(audit), **more)
    export.run(
        lines=[str(cells / f"{split}.jsonl") for split in ("train", "validate", "test")],
        regions=[str(cells / "regions/00.parquet")], sources=[str(cells / "sources/00.h5")], folder=str(out / name),
        format=name, options=options, source_names=["cells"], audit=[audit] if audit else [],
    )  # fmt: skip
    return out / name


@pytest.fixture(scope="module")
def exported(cells, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported")
    return {name: export_format(cells, out, name) for name in FORMATS}


def parse_boxes(text: str) -> list[list[int]]:
    value = json.loads(text)
    return [one["bbox_2d"] for one in (value if isinstance(value, list) else [value])]


def entries(folder: Path) -> list[dict]:
    return [
        one
        for name in ("train", "validate", "test")
        for one in (
            read_lines(folder / f"{name}.jsonl")
            if (folder / f"{name}.jsonl").is_file()
            else json.loads((folder / f"{name}.json").read_text())
        )
    ]


def test_messages_and_sharegpt_hold_each_query_with_its_boxes_and_picture(cells, exported):
    lines = lines_of(cells)
    for name in ("messages", "sharegpt"):
        found = entries(exported[name])
        assert {one["id"] for one in found} == lines.keys()
        for one in found:
            said = one["messages"] if name == "messages" else one["conversations"]
            keys = ("role", "content") if name == "messages" else ("from", "value")
            assert [each[keys[0]] for each in said] == {
                "messages": ["user", "assistant"],
                "sharegpt": ["human", "gpt"],
            }[name]
            assert said[0][keys[1]].startswith(f"<image>{lines[one['id']]['query']}")
            assert parse_boxes(said[1][keys[1]]) == lines[one["id"]]["boxes"]
            assert one["licence"] == "drawn by this project"
            with Image.open(exported[name] / one["images"][0]) as picture:
                assert picture.size == (256, 256)


def test_swift_has_a_box_for_each_mark_in_pixels_of_the_picture(cells, exported):
    """The keys that ms-swift's page of custom datasets lists for grounding."""
    rows = {(row["image_id"], row["region"]): row for row in regions_of(cells)}
    for one in entries(exported["swift"]):
        line = lines_of(cells)[one["id"]]
        assert {"messages", "images", "objects"} <= one.keys()
        assert set(one["objects"]) == {"ref", "bbox", "bbox_type"}
        assert one["objects"]["bbox_type"] == "real"
        asked, answer = (each["content"] for each in one["messages"])
        assert asked.count("<image>") == len(one["images"]) == 1
        assert asked.count("<ref-object>") == len(one["objects"]["ref"]) == 1
        assert answer.count("<bbox>") == len(one["objects"]["bbox"]) == len(line["regions"])
        wanted = [[rows[line["image_id"], at][side] for side in ("x1", "y1", "x2", "y2")] for at in line["regions"]]
        assert one["objects"]["bbox"] == wanted


def test_pycocotools_reads_the_boxes_and_their_queries(cells, exported):
    coco = pytest.importorskip("pycocotools.coco")
    asked: dict[str, list] = {}
    for name in ("train", "validate", "test"):
        api = coco.COCO(str(exported["coco"] / f"instances_{name}.json"))
        for one in api.dataset.get("annotations", []):
            image = api.loadImgs(one["image_id"])[0]
            with Image.open(exported["coco"] / image["file_name"]) as picture:
                assert picture.size == (image["width"], image["height"])
            assert api.loadCats(one["category_id"])[0]["name"] in ("nucleus", "rod")
            x, y, w, h = one["bbox"]
            for query_id in one["query_ids"]:
                grid = [
                    int(1000 * x // 256),
                    int(1000 * y // 256),
                    -int(-1000 * (x + w) // 256),
                    -int(-1000 * (y + h) // 256),
                ]
                asked.setdefault(query_id, []).append(grid)
    assert {name: sorted(boxes) for name, boxes in asked.items()} == {
        name: sorted(line["boxes"]) for name, line in lines_of(cells).items()
    }


def test_a_reader_of_refcocos_layout_finds_sentences_and_their_objects(cells, exported):
    held = json.loads((exported["refcoco"] / "instances.json").read_text())
    annotations = {one["id"]: one for one in held["annotations"]}
    refs = json.loads((exported["refcoco"] / "refs.json").read_text())
    lines = lines_of(cells)
    assert {ref["query_id"] for ref in refs} == lines.keys()
    for ref in refs:
        (sentence,) = ref["sentences"]
        line = lines[ref["query_id"]]
        assert (sentence["raw"], sentence["sent_id"]) == (line["query"], ref["sent_ids"][0])
        own = [annotations[at] for at in ref["ann_ids"]]
        assert [one["region"] for one in own] == line["regions"]
        assert {one["image_id"] for one in own} == {ref["image_id"]}
        assert ref["split"] in ("train", "val", "test")


def test_datasets_opens_the_parquet_with_pictures_and_boxes(cells, exported, tmp_path):
    datasets = pytest.importorskip("datasets")
    held = datasets.load_dataset(str(exported["hf"]), cache_dir=str(tmp_path))
    lines = lines_of(cells)
    assert sum(map(len, held.values())) == len(lines)
    for split in held.values():
        for row in split:
            line = lines[row["query_id"]]
            assert (row["query"], row["grid"]) == (line["query"], line["boxes"])
            assert row["image"].size == (256, 256)
    assert not (exported["hf"] / "images").exists()


@pytest.mark.parametrize("name", FORMATS)
def test_no_pixels_are_written_where_they_are_withheld(cells, tmp_path, name):
    out = export_format(cells, tmp_path, name, withhold=["pixels"])
    assert not [path for path in out.rglob("*") if path.suffix in (".png", ".jpg")]
    if name == "hf":
        assert "image" not in pl.read_parquet(out / "data/train-00000.parquet").columns
    if name == "messages":
        assert all(not one["images"] and "<image>" not in one["messages"][0]["content"] for one in entries(out))
    assert "pictures are withheld" in (out / "README.md").read_text()


def test_a_licence_without_derivatives_leaves_the_exports_with_pixels(cells, tmp_path):
    folder = tmp_path / "nd"
    folder.mkdir()
    for part in ("sources", "regions"):
        (folder / part).symlink_to(cells / part)
    for name in ("train", "validate", "test"):
        lines = list(read_lines(cells / f"{name}.jsonl"))
        write_lines(
            folder / f"{name}.jsonl",
            [line | {"licence": "CC BY-NC-ND 3.0"} if name == "train" else line for line in lines],
        )
    kept = {one["id"] for one in entries(export_format(folder, tmp_path / "a", "messages"))}
    assert kept == {name for name, line in lines_of(folder).items() if line["split"] != "train"}
    assert "forbids derivatives" in (tmp_path / "a/messages/README.md").read_text()
    assert len(entries(export_format(folder, tmp_path / "b", "messages", allow_nd=True))) == len(lines_of(cells))
    assert len(entries(export_format(folder, tmp_path / "c", "messages", withhold=["pixels"]))) == len(lines_of(cells))


@pytest.mark.parametrize(
    ("licence", "forbids"),
    [("CC BY-NC-ND 3.0", True), ("CC BY-NC-SA 4.0", False), ("BSD-3-Clause", False), ("", False)],
)
def test_which_licences_forbid_derivatives(licence, forbids):
    assert export.forbids_derivatives(licence) is forbids


def test_only_what_experts_let_stand_is_exported(cells, tmp_path):
    test = [line["query_id"] for line in read_lines(cells / "test.jsonl")]
    assert len(test) > 5
    rows = [(name, "cells", "", 3, 3 * (at % 2), at % 2 == 1, [], "") for at, name in enumerate(test[:5])]

    def votes(name: str, held: list) -> str:
        write_table(tmp_path / name, pl.DataFrame(held, schema=schema(AUDIT), orient="row"), AUDIT)
        return str(tmp_path / name)

    out = export_format(cells, tmp_path, "messages", audit=votes("audit.parquet", rows))
    assert {one["id"] for one in read_lines(out / "test.jsonl")} == set(test[1:5:2])
    assert len(list(read_lines(out / "train.jsonl"))) == len(list(read_lines(cells / "train.jsonl")))
    stale = votes("stale.parquet", [*rows, ("qgone", "cells", "", 3, 3, True, [], "")])
    with pytest.raises(UserError, match="has votes on 1 queries that are no longer in the dataset, such as qgone"):
        export_format(cells, tmp_path, "messages", audit=stale)


def test_coordinates_of_a_text_are_of_the_picture_that_it_names(cells, tmp_path):
    """256 px lies 28 * 9 = 252 px from Qwen's next multiple: its processor makes 252 of 256."""
    lines = lines_of(cells)
    resized = entries(export_format(cells, tmp_path / "a", "messages", coordinates="pixels_resized"))
    for one in resized:
        boxes = np.array(lines[one["id"]]["boxes"]) / 1000 * 252
        assert parse_boxes(one["messages"][1]["content"]) == np.floor(boxes + 0.5).astype(int).tolist()
    for one in entries(export_format(cells, tmp_path / "b", "messages", coordinates="pixels_original")):
        assert parse_boxes(one["messages"][1]["content"]) == np.array(lines[one["id"]]["boxes_px"], int).tolist()


@pytest.mark.parametrize(
    ("size", "limits", "sides"),
    [
        ((256, 256), (3136, 12_845_056), (252, 252)),  # 9.14 units of 28
        ((640, 427), (3136, 12_845_056), (644, 420)),  # 22.86 and 15.25 units
        ((20, 300), (3136, 12_845_056), (28, 308)),
        ((20, 20), (3136, 12_845_056), (56, 56)),  # scaled up to 56 x 56, no less than 3136
        ((1000, 1000), (3136, 250_000), (476, 476)),  # 500 x 500 floors to 17 units
    ],
)
def test_sides_that_a_processor_makes(size, limits, sides):
    seen = export.resized_sides(*size, 14, merge=2, min_pixels=limits[0], max_pixels=limits[1])
    assert (seen.width, seen.height) == sides
