"""Review: units, dealing, blinding; sheets and their faults; rates and agreement worked out by hand."""

import json
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest
import yaml

from conftest import ROOT
from cxr.base.errors import UserError
from cxr.plotting.encoding import encode_grey_image, encode_mask, escape_json_for_script
from cxr.reporting.review import rates
from cxr.reporting.review.make_pages import tabulate_units
from cxr.reporting.review.merge import find_reasons, judge_units
from cxr.reporting.review.sheets import Answer, read_sheets
from cxr.reporting.review.units import LETTERS, collect_units, deal_units, draw_sample, order_items
from review_cases import NASTY, VERDICT, cells, make_page, units

EXPERTS = ["A", "B", "C", "D"]


def line(pair_id: str, mask_id: str | None, target: str, *location: str, image_id: str = "i1") -> dict:
    return {
        "pair_id": pair_id, "subject_id": "p1", "study_id": "s1", "image_id": image_id, "section_name": "findings",
        "section_content": "Edema.", "target": target, "location": list(location), "mask_id": mask_id,
        "certainty": "definitive",
    }  # fmt: skip


def test_a_unit_is_a_distinct_mask_target_and_location():
    found = collect_units(
        [
            line("basic", "m1", "edema", "left lung"),
            line("inference", "m1", "edema", "left lung"),
            line("global", "m1", "edema", "left lung"),
            line("other place", "m1", "edema", "left lung", "right lung"),
            line("other target", "m1", "opacity", "left lung"),
            line("absent", None, "opacity", "right lung"),
            line("absent, inference", None, "opacity", "right lung"),
            line("absent elsewhere", None, "opacity"),
            line("other image", None, "opacity", image_id="i2"),
        ],
        "test.jsonl",
    )
    assert [unit.pair_ids for unit in found] == [
        ["basic", "inference", "global"], ["other place"], ["other target"], ["absent", "absent, inference"],
        ["absent elsewhere"], ["other image"],
    ]  # fmt: skip
    assert [unit.is_positive for unit in found] == [True] * 3 + [False] * 3


def test_a_line_that_is_no_pair_is_named():
    whole = line("a", None, "edema")
    broken = {key: value for key, value in whole.items() if key != "mask_id"}
    with pytest.raises(UserError, match=r"test\.jsonl, line 2 has no field 'mask_id'"):
        collect_units([whole, broken], "test.jsonl")


def test_a_draw_holds_the_smaller_draws_and_knows_no_order():
    every = units(40, 0)
    small, large = ({unit.key for unit in draw_sample(every, number, 3)} for number in (5, 12))
    assert len(small) == 5
    assert len(large) == 12
    assert small < large
    assert {unit.key for unit in draw_sample(every[::-1], 5, 3)} == small
    assert {unit.key for unit in draw_sample(every, 5, 4)} != small
    assert draw_sample(every, 0, 3) == draw_sample(every, 99, 3) == every


def test_positives_go_to_all_and_negatives_to_one():
    every = units(20, 150)
    dealt = deal_units(every, EXPERTS, 1)
    for given in dealt.values():
        assert sum(unit.is_positive for unit in given) == 20
    negatives = {expert: [unit for unit in given if not unit.is_positive] for expert, given in dealt.items()}
    keys = [unit.key for given in negatives.values() for unit in given]
    assert sorted(keys) == sorted(unit.key for unit in every if not unit.is_positive)
    # 30 images of 5 negatives: nobody has an image more than another
    assert sorted(map(len, negatives.values())) == [35, 35, 40, 40]
    images = [{unit.image_id for unit in given} for given in negatives.values()]
    assert sum(map(len, images)) == len(set.union(*images)) == 30


def test_experts_orders_and_codes_are_independent():
    every = units(300, 0)
    orders = {expert: order_items(every, expert, 1) for expert in EXPERTS}
    codes = [code for order in orders.values() for code, _ in order]
    assert len(set(codes)) == 1200
    assert all(len(code) == 8 and set(code) <= set(LETTERS) for code in codes)
    place = {unit.key: number for number, unit in enumerate(every)}
    ranks = np.array([[place[unit.key] for _, unit in order] for order in orders.values()])
    correlations = np.corrcoef(ranks)[np.triu_indices(4, 1)]
    assert (np.abs(correlations) < 0.2).all()  # 3.5 standard errors of chance
    assert order_items(every[::-1], "A", 1) == orders["A"]
    assert [unit for _, unit in order_items(every, "A", 2)] != [unit for _, unit in orders["A"]]


def test_pictures_are_kept_to_the_pixel_and_masks_in_one_bit():
    image = np.random.default_rng(1).integers(0, 256, (512, 512), np.uint8)
    kind, data = encode_grey_image(image, 0)
    assert kind == "image/png"
    np.testing.assert_array_equal(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED), image)
    area = image > 200
    data = encode_mask(area)
    assert data[24] == 1  # bits a pixel, in the head of the PNG
    np.testing.assert_array_equal(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE) > 0, area)
    kind, small = encode_grey_image(image, 50)
    assert kind == "image/jpeg"
    assert small.startswith(b"\xff\xd8\xff")


class Elements(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def test_a_page_holds_no_id_and_nothing_from_elsewhere(tmp_path):
    _, items = make_page(tmp_path / "page.html", positives=40, negatives=20)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "secret" not in text
    assert "default" not in "".join(text.split("<script")[1])  # the name of the threshold set is not among the data
    elements = Elements(text).found
    assert not {"link", "iframe", "object", "embed", "base", "img"} & {tag for tag, _ in elements}
    assert not [value for _, attrs in elements for name, value in attrs.items() if name in ("src", "href")]
    scripts = [attrs for tag, attrs in elements if tag == "script"]
    assert [attrs.get("type") for attrs in scripts] == ["application/json", *["text/plain"] * 30, None]
    policy = next(attrs["content"] for _, attrs in elements if "http-equiv" in attrs)
    assert policy.startswith("default-src 'none'; img-src data:; script-src 'sha256-")
    assert "unsafe" not in policy
    assert len(items) == 60


def test_data_stay_data():
    text = escape_json_for_script({"report": NASTY})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"report": NASTY}


def test_the_same_units_give_the_same_page_and_others_another_digest(tmp_path):
    pages = [
        make_page(tmp_path / f"{n}.html", positives=6, negatives=6, seed=seed)[0] for n, seed in enumerate((1, 1, 2))
    ]
    texts = [(tmp_path / f"{n}.html").read_bytes() for n in range(3)]
    assert texts[0] == texts[1] != texts[2]
    assert pages[0]["page"] != pages[2]["page"]
    other, _ = make_page(tmp_path / "b.html", "B", positives=6, negatives=6)
    assert other["page"] != pages[0]["page"]


YES, NO = {"verdict": "acceptable"}, {"verdict": "not acceptable"}
ASKED = {"A": ("pa", ["bcd", "fgh"]), "B": ("pb", ["jkm"]), "C": ("pc", [])}
HEAD = "item,verdict,note,seconds,page\r\n"
GOOD_A = HEAD + 'fgh,Not acceptable,"a ""note"", of\r\ntwo lines",12,pa\r\nbcd,acceptable,,,pa\r\n'
GOOD_B = "\ufeffitem;verdict;note;seconds;page\r\njkm;acceptable;;3;pb\r\n"


def sheets(folder: Path, *texts: str) -> list[str]:
    paths = [folder / f"{number}.csv" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode())
    return [str(path) for path in paths]


def test_sheets_are_read_whatever_their_order_marks_and_lines(tmp_path):
    found = read_sheets(sheets(tmp_path, GOOD_B, GOOD_A), ASKED, VERDICT, "review.sheets")
    assert found == {
        "A": {
            "fgh": Answer(NO, 'a "note", of\ntwo lines', 12),
            "bcd": Answer(YES, "", None),
        },
        "B": {"jkm": Answer(YES, "", 3)},
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEAD + "bcd,,,,pa\r\n", "0.csv, line 2, column verdict is empty"),
        (HEAD + "bcd,acceptable,,,pa\r\n\r\nfgh,maybe,,,pa\r\n", "line 4, column verdict: 'maybe' is neither"),
        (HEAD + "bcd,acceptable,,,pa\r\nxyz,acceptable,,,pa\r\n", "column item: 'xyz' is not an item of this page"),
        (HEAD + "bcd,acceptable,,,pa\r\nbcd,acceptable,,,pa\r\n", "line 3, column item: 'bcd' is in line 2 too"),
        (HEAD + "bcd,acceptable,,soon,pa\r\n", "line 2, column seconds: 'soon' is not a whole number"),
        (HEAD + "bcd,acceptable,,,pa\r\nfgh,acceptable,,,pb\r\n", "line 3, column page: 'pb' is not 'pa' as in"),
        (HEAD + "bcd,acceptable,,,old\r\n", "line 2, column page: 'old' is not a page of this review"),
        (HEAD + "bcd,acceptable,,,pa\r\n", "ends at line 2 and lacks 1 of 2 items, the first of which is fgh"),
        (HEAD + "bcd,acceptable,pa\r\n", "line 2 has 3 cells, the header has 5"),
        (HEAD, "contains no item"),
        ("item,note,seconds,page\r\nbcd,,,pa\r\n", "lacks the column verdict"),
        ("", "has no rows"),
        (HEAD + 'bcd,"acceptable,,,pa\r\n', "line 2: a quotation mark"),
        (HEAD + "bcd,acceptable,\udc81,,pa\r\n", "line 2 is neither UTF-8 nor Windows-1252"),
        (GOOD_B, "review.sheets has no sheet of expert A"),
    ],
)  # fmt: skip
def test_a_fault_of_a_sheet_is_named_with_its_place(tmp_path, text, sentence):
    path = tmp_path / "0.csv"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError) as caught:
        read_sheets([str(path)], ASKED, VERDICT, "review.sheets")
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value) or text == GOOD_B


def test_two_sheets_of_one_expert_and_none_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"1.csv and .*0.csv are both sheets of expert B"):
        read_sheets(sheets(tmp_path, GOOD_B, GOOD_B), ASKED, VERDICT, "review.sheets")
    with pytest.raises(UserError, match=r"review.sheets is empty"):
        read_sheets([], ASKED, VERDICT, "review.sheets")


def test_wilsons_interval_by_hand():
    # k = 8 of 10, z = 1.959964: centre (0.8 + z²/20) / (1 + z²/10), half z sqrt(0.16/10 + z²/400) / (1 + z²/10)
    found = rates.rate_with_interval(8, 10)
    assert (found["rate"], found["low"], found["high"]) == (80.0, 49.016, 94.332)
    assert rates.rate_with_interval(0, 0)["rate"] is None
    assert rates.rate_with_interval(5, 5)["high"] == 100.0


def verdicts(rows: list[tuple]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=rates.VERDICTS, orient="row")


SAID = verdicts(
    [
        ("A", 0, "p", "edema", True, True), ("B", 0, "p", "edema", True, True),
        ("A", 1, "p", "edema", True, True), ("B", 1, "p", "edema", True, False),
        ("A", 2, "q", "effusion", True, False), ("B", 2, "q", "effusion", True, False),
        ("A", 3, "q", "edema", False, True), ("B", 4, "r", "edema", False, False),
        ("B", 5, "r", "opacity", False, True),
    ]
)  # fmt: skip
PRINTED = yaml.safe_load((ROOT / "resources/paper_tables.yaml").read_text(encoding="utf-8"))["review"]


def test_table_3_by_hand():
    table = rates.tabulate_experts(SAID, ["A", "B"], PRINTED)
    ours = {
        (row["expert"], row["group"]): (row["accepted"], row["units"])
        for row in table.filter(pl.col("source") == "ours").iter_rows(named=True)
    }
    assert ours == {
        ("A", "total"): (3, 4), ("A", "positive"): (2, 3), ("A", "negative"): (1, 1),
        ("B", "total"): (2, 5), ("B", "positive"): (1, 3), ("B", "negative"): (1, 2),
        ("overall", "total"): (3, 6), ("overall", "positive"): (1, 3), ("overall", "negative"): (2, 3),
    }  # fmt: skip
    paper = cells(table, source="paper", expert="overall", group="positive")
    assert (paper["rate"], paper["units"], paper["accepted"]) == (90.1, 1841, None)


def test_table_13_by_hand():
    table = rates.tabulate_lesions(SAID, ["A", "B"], PRINTED)
    assert cells(table, source="ours", lesion="edema", expert="B", group="total")["rate"] == pytest.approx(33.333)
    assert cells(table, source="ours", lesion="edema", expert="overall", group="positive")["accepted"] == 1
    assert cells(table, source="ours", lesion="pneumonia", expert="A", group="positive")["rate"] is None
    assert cells(table, source="paper", lesion="effusion", expert="B", group="positive")["rate"] == 89.3
    assert "misprinted" in cells(table, source="paper", lesion="opacity", expert="B", group="total")["note"]


def test_the_papers_table_3_adds_up():
    negatives = [groups["negative"][1] for expert, groups in PRINTED["experts"].items() if expert != "overall"]
    assert sum(negatives) == PRINTED["experts"]["overall"]["negative"][1] == 8860
    for groups in PRINTED["experts"].values():
        parts = [groups[name] for name in ("positive", "negative")]
        assert groups["total"][1] == sum(units for _, units in parts)
        assert groups["total"][0] == pytest.approx(sum(r * n for r, n in parts) / groups["total"][1], abs=0.1)


def test_agreement_is_of_units_that_all_judged():
    table = rates.tabulate_agreement(SAID, ["A", "B"], seed=1)
    total = cells(table, lesion="total")
    assert (total["units"], total["unanimous"], total["percent_agreement"]) == (3, 2, 66.667)
    assert total["kappa"] == pytest.approx(1 / 3, abs=1e-4)  # chance 1/2: p is 3 of 6
    assert cells(table, lesion="effusion")["units"] == 1
    assert cells(table, lesion="opacity")["units"] == 0


def test_what_anyone_rejects_leaves_with_all_its_pairs():
    every = units(2, 1)
    every[0].pair_ids.append("twin")
    table = tabulate_units(every, {every[0].key, every[2].key})
    said = pl.DataFrame({"expert": ["A", "B", "A"], "unit": [0, 0, 2], "accepted": [True, False, True], "note": ""})
    judged = judge_units(table, said)
    assert judged["rejected_by"].to_list() == [["B"], None, []]
    gone = dict.fromkeys(("pair-secret-0", "twin"), "rejected by B")
    assert find_reasons(judged, "keep") == gone
    assert find_reasons(judged, "drop") == gone | {"pair-secret-1": "not reviewed"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"experts": ["A", "a"]}, "names 'A' more than once"),
        ({"experts": ["../A"]}, "review.experts, entry 1, is '../A'"),
        ({"thresholds": "nosuch"}, "review.thresholds names 'nosuch'"),
        ({"sheets": ["nowhere.csv"]}, "review.sheets: there is no file 'nowhere.csv'"),
        ({"sheets": ["."]}, "review.sheets: the folder '.' holds no .csv file"),
    ],
)
def test_wrong_settings_are_named_before_any_job(tmp_path, monkeypatch, change, words):
    from cxr.workflow.plan_reporting import find_sheets
    from cxr.workflow.settings import SettingsError, read

    monkeypatch.chdir(tmp_path)
    with pytest.raises((SettingsError, UserError)) as caught:
        find_sheets("review.sheets", read({"review": change}).review.sheets)
    assert words in str(caught.value)
