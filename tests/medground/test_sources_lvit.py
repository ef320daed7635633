"""Trees in LViT's layout and their descriptions, each defect, and MoNuSeg's tree of the shared data."""

import logging
from pathlib import Path

import cv2
import numpy as np
import openpyxl
import pytest

from cxr.base.errors import UserError
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.dicom.files import Rejected
from cxr.medground.logic.atoms import NO, UNCLEAR, YES, LogicOptions
from cxr.medground.logic.decide import Decider
from cxr.medground.logic.scene import build_scene
from cxr.medground.logic.text import LONGEST, Description, clean_description, parse_description, sides_disagree
from cxr.medground.sources.lvit import read_lvit, read_workbook
from cxr.medground.verification import verify
from lvit_tree import BOTH, LEFT, tree, workbook
from medground_attacks import ATTACKS, SUBTLE
from medground_data import (
    NUCLEUS,
    facts_of,
    make_queries_of,
    make_regions_of,
    read_source,
    regions_of,
    source_keys,
    verification_options,
)

INFECTED = {"infected": {"one": "infected area", "many": "infected areas"}}
PLAIN = {"mask_threshold": 0, "most_foreground": 0.8, "resize_masks": "none"}


def keys(folder: Path, **more) -> dict:
    return source_keys(kind="lvit", folder=str(folder), classes=INFECTED, domain="cxr", **more)


@pytest.fixture
def qata(tmp_path):
    return tree(
        tmp_path / "QaTa", Train=[("covid_1", BOTH, ("left", "right")), ("covid_2", LEFT, ("right",))],
        Test=[("covid_3", "Something else.", ("left",)), ("covid_4", None, ("left",))],
    )  # fmt: skip


def test_a_tree_is_read_with_masks_named_after_images_and_no_val_folder(qata, tmp_path):
    read_source(tmp_path / "out", keys(qata), size=96)
    rows = {row["image_id"]: row for row in read_table(tmp_path / "out/sources/images.parquet").to_dicts()}
    assert {name: row["split"] for name, row in rows.items()} == {
        "covid_1": "train", "covid_2": "train", "covid_3": "test", "covid_4": "test",
    }  # fmt: skip
    assert {name: row["described"] for name, row in rows.items()} == {
        "covid_1": "read", "covid_2": "read", "covid_3": "unread", "covid_4": "none",
    }  # fmt: skip
    assert [rows[f"covid_{at}"]["disagrees"] for at in (1, 2, 3, 4)] == [False, False, None, None]
    assert rows["covid_1"]["description"] == BOTH
    make_regions_of(tmp_path / "out")


def test_a_text_about_the_other_side_is_told_and_most_of_them_once(tmp_path, caplog):
    folder = tree(tmp_path / "mirrored", Train=[(f"covid_{at}", LEFT, ("left",)) for at in range(3)])
    with caplog.at_level(logging.WARNING, "cxr"):
        read_source(tmp_path / "out", keys(folder), size=96, name="qata")
    assert read_table(tmp_path / "out/sources/images.parquet")["disagrees"].to_list() == [True] * 3
    assert len([one for one in caplog.messages if "3 of 3 descriptions name other sides" in one]) == 1
    caplog.clear()
    read_source(tmp_path / "unknown", keys(folder, orientation="unknown"), size=96)
    assert read_table(tmp_path / "unknown/sources/images.parquet")["disagrees"].to_list() == [None] * 3
    assert not caplog.messages


def reasons(folder: Path, **more) -> dict[str, str]:
    reason_by_image = {}
    for image_id, read_image in read_lvit("qata", keys(folder, **more) | PLAIN, str(folder)):
        try:
            read_image()
        except Rejected as rejected:
            reason_by_image[image_id] = rejected.reason
    return reason_by_image


def test_what_lacks_a_picture_or_a_mask_is_one_reasoned_row(qata):
    (qata / "Train_Folder/img/covid_1.png").unlink()
    (qata / "Train_Folder/labelcol/mask_covid_2.png").unlink()
    cv2.imwrite(str(qata / "Test_Folder/labelcol/mask_covid_3.png"), np.zeros((64, 96), np.uint8))
    cv2.imwrite(str(qata / "Test_Folder/labelcol/mask_covid_4.png"), np.full((40, 96), 255, np.uint8))
    assert reasons(qata) == {
        "mask_covid_1": "missing_file", "covid_2": "missing_file", "covid_3": "empty_mask", "covid_4": "shape_mismatch",
    }  # fmt: skip


def test_a_mask_of_more_values_needs_a_threshold(qata):
    path = qata / "Train_Folder/labelcol/mask_covid_2.png"
    noisy = cv2.imread(str(path), 0)
    noisy[0, 0] = 7
    cv2.imwrite(str(path), noisy)
    assert reasons(qata) == {"covid_2": "unknown_label"}
    readers = dict(read_lvit("qata", keys(qata) | PLAIN | {"mask_threshold": 127}, str(qata)))
    assert readers["covid_2"]().masks["infected"].sum() == 400


@pytest.mark.parametrize(
    ("break_", "sentence"),
    [
        (lambda part: (part / "Train_text.xlsx").write_bytes(b"no zip"), "cannot be read as a workbook"),
        (
            lambda part: workbook(part / "Train_text.xlsx", [("a", "b")], head=("Image", "Text")),
            "no sheet with the columns",
        ),
        (lambda part: workbook(part / "second.xlsx", []), "has the workbooks Train_text.xlsx and second.xlsx"),
        (
            lambda part: workbook(part / "Train_text.xlsx", [("a.png", "x"), ("a.png", "y")]),
            "row 3 .* repeats the image 'a'",
        ),
    ],
)
def test_a_wrong_workbook_is_one_sentence(qata, break_, sentence):
    break_(qata / "Train_Folder")
    with pytest.raises(UserError, match=f"medground.sources.sets.qata.folder: .*{sentence}"):
        list(read_lvit("qata", keys(qata) | PLAIN, str(qata)))


def test_a_folder_without_splits_and_an_image_in_two_are_refused(qata, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has none of the folders Train_Folder"):
        list(read_lvit("qata", keys(tmp_path) | PLAIN, str(tmp_path / "empty")))
    picture = qata / "Train_Folder/img/covid_1.png"
    (qata / "Test_Folder/img/covid_1.png").write_bytes(picture.read_bytes())
    with pytest.raises(UserError, match="'covid_1' is in the splits train and test"):
        list(read_lvit("qata", keys(qata) | PLAIN, str(qata)))


def test_a_workbook_is_read_by_values_from_the_sheet_that_has_the_columns(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(("notes",))
    sheet = book.create_sheet("texts")
    for row in (
        ("More", "Description", "Image"),
        (1, "One.", "a.png"),
        (2, "=1+1", "b.png"),
        (3, None, "c.png"),
        (4, "x", None),
    ):
        sheet.append(row)
    book.save(tmp_path / "a.xlsx")
    assert read_workbook(tmp_path / "a.xlsx", "key") == {"a": "One.", "b": "", "c": ""}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (BOTH, Description(2, ((("lower",), "left"), (("lower",), "right")))),
        (LEFT, Description(1, ((("upper", "middle", "lower"), "left"),))),
        ("unilateral pulmonary infection, three infected areas, upper middle lower right lung",
         Description(3, ((("upper", "middle", "lower"), "right"),))),
        ("Bilateral pulmonary infection, 4 infected areas, upper left lung, middle left lung, and all right lung.",
         Description(4, ((("upper",), "left"), (("middle",), "left"), (("upper", "middle", "lower"), "right")))),
        ("The nuclei density in the upper right is high.", Description(None, ((("upper",), "right"),))),
        ("The nuclei density in the lower is high.", Description(None, ((("lower",), ""),))),
        ("Bilateral pulmonary infection, many infected areas, lower left lung.", None),
        ("Bilateral pulmonary infection, two infected areas, lower left lung and elsewhere.", None),
        ("The nuclei are evenly distributed.", None),
        ("", None),
    ],
)  # fmt: skip
def test_what_a_description_says(text, wanted):
    assert parse_description(text) == wanted


@pytest.mark.parametrize("text", SUBTLE)
def test_an_order_that_is_not_known_as_one_is_plain_text(text):
    assert clean_description(text) == (text, "unread")


@pytest.mark.parametrize("text", ATTACKS)
def test_an_order_to_a_model_is_not_kept(text):
    assert clean_description(text) == ("", "refused")


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("a " * 10_000, ("a " * 300).strip()),
        ("left\u202e lung\u200b\x00 of {slot} and [mark]", "left lung of (slot) and (mark)"),
        ("\n\t ", ""),
    ],
)
def test_a_strange_text_is_made_harmless(text, held):
    found, state = clean_description(text)
    assert (found, len(found) <= LONGEST) == (held, True)
    assert state == ("unread" if held else "none")


def test_sides_of_a_mask_are_the_patients():
    mask = np.zeros((10, 10), bool)
    mask[5, 2] = True
    assert sides_disagree(LEFT, {"infected": mask}, radiological=True)
    assert not sides_disagree(LEFT.replace("left", "right"), {"infected": mask}, radiological=True)
    assert sides_disagree(LEFT, {"infected": mask}, radiological=False) is None


def test_monusegs_own_tree_is_read_with_its_descriptions(shared, tmp_path):
    """Ten pictures beside workbooks of 24 and 14 rows: each row without its picture is a row of its own."""
    folder = shared / "data/nuclei/monuseg"
    if not folder.is_dir():
        pytest.skip("the pictures of nuclei are absent")
    given = source_keys(kind="lvit", folder=str(folder), classes=NUCLEUS, domain="nuclei")
    read_source(tmp_path / "out", given, size=512)
    rows = read_table(tmp_path / "out/sources/images.parquet").to_dicts()
    assert [sum(row["split"] == split for row in rows) for split in ("train", "validate", "test")] == [8, 0, 2]
    assert sorted(row["described"] for row in rows) == ["read"] * 5 + ["unread"] * 5
    gone = read_table(tmp_path / "out/sources/excluded.parquet")
    assert gone["reason"].to_list() == ["missing_file"] * (24 + 14 - 10)


def lines_of(folder: Path, texts: list[str | None]) -> list[tuple]:
    """Return what is asked about three pictures with these descriptions, and what is kept of them."""
    sides = ("left", "right", "left")
    made = tree(folder / "tree", Test=[(f"c{at}", text, sides[at : at + 1]) for at, text in enumerate(texts)])
    make_regions_of(read_source(folder / "out", keys(made), size=96))
    told = read_table(folder / "out/sources/images.parquet")["description"].to_list()
    lines = make_queries_of(folder / "out", "given", per_image=4)
    return [(line["query_id"], line["image_id"], line["query"], line["regions"]) for line in lines], told


def test_a_description_that_attacks_changes_no_line(tmp_path):
    plain, _ = lines_of(tmp_path / "plain", [None, LEFT, None])
    assert plain
    assert len(ATTACKS) + len(SUBTLE) >= 30
    attacked, told = lines_of(tmp_path / "attacked", [" ".join(ATTACKS), LEFT, " ".join(SUBTLE)])
    assert told == ["", LEFT, " ".join(SUBTLE)]
    assert attacked == plain


def places_of(folder: Path, text: str, sides: tuple[str, ...]) -> dict[str, list[int]]:
    """Return {zone: the atom's values} of the regions of one image, right lung's first, as its description tells."""
    made = tree(folder / "tree", Test=[("c", text, sides)])
    make_regions_of(read_source(folder / "out", keys(made), size=96))
    image = read_table(folder / "out/sources/images.parquet").to_dicts()[0]
    scene = build_scene(image, regions_of(folder / "out"), facts_of(folder / "out"), 96)
    return {
        name.removeprefix("zone:"): values.tolist()
        for name, values in Decider(scene, LogicOptions()).atoms.items()
        if name.startswith("zone:")
    }


def test_a_place_tells_the_zone_of_the_only_region_on_its_side(tmp_path):
    """The picture's left has the patient's right region. Of two levels each is unclear; the third is No."""
    text = "Bilateral pulmonary infection, two infected areas, upper middle left lung and lower right lung."
    assert places_of(tmp_path, text, ("left", "right")) == {
        "right upper zone lung": [NO, NO], "right mid zone lung": [NO, NO], "right lower zone lung": [YES, NO],
        "left upper zone lung": [NO, UNCLEAR], "left mid zone lung": [NO, UNCLEAR], "left lower zone lung": [NO, NO],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        (LEFT, ("left",)),
        (BOTH.replace("two", "three"), ("left", "right")),
        ("Unilateral pulmonary infection, two infected areas, lower left lung.", ("right", "right_below")),
        ("Something else.", ("left",)),
    ],
    ids=["another side", "another number", "two on its side", "unknown form"],
)
def test_a_place_that_tells_no_region_is_not_used(tmp_path, text, sides):
    assert places_of(tmp_path, text, sides) == {}


@pytest.fixture
def stated(tmp_path) -> Path:
    """A tree of six pictures, as a zero-shot source of statements; its verified lines lie in the folder."""
    middle = LEFT.replace("all left", "lower left")
    made = tree(
        tmp_path / "QaTa",
        Test=[
            ("agrees", BOTH, ("left", "right")), ("one", middle, ("right",)), ("mirrored", middle, ("left",)),
            ("three", BOTH.replace("two", "three"), ("left", "right")), ("silent", None, ("left",)),
            ("other", "Something else.", ("left",)),
        ],
    )  # fmt: skip
    given = keys(made, use="zero_shot", queries="statements")
    make_regions_of(read_source(tmp_path, given, size=96, name="qata"))
    make_queries_of(tmp_path, "qata", statements=True)
    return tmp_path


def verified(folder: Path, **more: object) -> tuple[list[dict], list[dict]]:
    """Return the accepted lines and the rejected rows."""
    part = folder / "verification"
    part.mkdir(exist_ok=True)
    verify.run_shard(
        sources=str(folder / "sources/00.h5"), images=str(folder / "sources/images.parquet"),
        regions=str(folder / "regions/00.parquet"), queries=str(folder / "queries/00.jsonl"),
        output=str(part / "00.jsonl"), rejected=str(part / "00.rejected.parquet"),
        **verification_options(**more),
    )  # fmt: skip
    return list(read_lines(part / "00.jsonl")), read_table(part / "00.rejected.parquet").to_dicts()


def test_a_statement_asks_for_the_regions_on_the_sides_that_it_names(stated):
    lines = {line["image_id"]: line for line in read_lines(stated / "queries/00.jsonl")}
    assert {name: (line["query"], len(line["boxes"]), line["kind"]) for name, line in lines.items()} == {
        "agrees": (BOTH, 2, "all"), "one": (LEFT.replace("all left", "lower left"), 1, "single"),
    }  # fmt: skip
    (box,) = lines["one"]["boxes"]
    assert box[0] > 500  # the patient's left
    assert {line["engine"] for line in lines.values()} == {"statements"}
    assert all(line["description_used"] for line in lines.values())
    assert lines["one"]["trivial"]
    gone = read_table(stated / "queries/00.unasked.parquet")
    assert dict(gone.select("image_id", "reason").iter_rows()) == {
        "mirrored": "side_disagrees", "three": "number_disagrees", "silent": "not_given", "other": "not_given",
    }  # fmt: skip


def test_the_first_stages_run_on_statements_and_reject_none(stated):
    """A line whose answer was exchanged for a wrong one is noted; as a query it is rejected."""
    path = stated / "queries/00.jsonl"
    lines = list(read_lines(path))
    (right,) = ((one, box) for one, box in zip(lines[0]["regions"], lines[0]["boxes"], strict=True) if box[0] < 500)
    lines[1] |= {"query": BOTH.replace("two infected", "2 infected")}
    wrong = lines[0] | {"query_id": "q1", "query": "The left lung infected area.", "regions": [right[0]]}
    write_lines(path, [*lines, wrong | {"boxes": [right[1]]}])
    kept, gone = verified(stated, statements=True)
    assert not gone
    assert [line["checks"]["noted"][:2] for line in kept] == [[], ["II", "side"], ["I", "coordinates"]]
    assert {(line["checks"]["judge"], line["checks"]["verdict"]) for line in kept} == {("none", "not_run")}
    kept, gone = verified(stated)
    assert [(row["stage"], row["reason"]) for row in gone] == [("II", "side"), ("I", "coordinates")]
    assert len(kept) == 1


def test_statements_need_a_source_that_no_training_reads(qata):
    with pytest.raises(ValueError, match="queries is statements, but use is 'dataset': set use to zero_shot"):
        keys(qata, queries="statements")
    for name, value in (("orientation", "unknown"), ("domain", "nuclei"), ("tile", 64), ("kind", "boxes")):
        with pytest.raises(ValueError, match=f"queries is statements, but {name} is"):
            source_keys(
                **({"kind": "lvit", "use": "zero_shot", "domain": "cxr", "queries": "statements"} | {name: value})
            )


def test_no_stage_vouches_for_a_statement(stated):
    kept, _ = verified(stated, statements=True)
    part = stated / "verification"
    verify.run_rates(
        queries=[str(stated / "queries/00.jsonl")], accepted=[str(part / "00.jsonl")],
        parts=[str(part / "00.rejected.parquet")], rates=str(part / "rates.tsv"), grouped=str(part / "groups.tsv"),
        rejected=str(part / "all.parquet"),
    )  # fmt: skip
    rows = [row for row in read_table(part / "rates.tsv").to_dicts() if row["source"] == "total"]
    assert [(row["stage"], row["accepted"], row["passed"]) for row in rows] == [
        (stage, len(kept), 0) for stage in ("I", "II", "III")
    ]
