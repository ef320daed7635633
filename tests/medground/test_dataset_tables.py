"""Language measures on texts counted by hand, and the gallery: what is drawn is the query's answer."""

import cv2
import numpy as np
import polars as pl
import pytest
import yaml

from conftest import ROOT
from cxr.base.columns import schema
from cxr.base.errors import UserError
from cxr.base.tables import read_lines, read_table, write_lines, write_table
from cxr.medground import charts
from cxr.medground.dataset import gallery, language, paper_comparison, scispacy_entities, tokens
from cxr.medground.dataset.make_dataset import STATISTICS, _statistics
from cxr.medground.logic.facts import Facts
from cxr.medground.scoring.scores import COMPARISON
from cxr.medground.verification.verify import PASSED, REJECTED
from cxr.vlm.families.qwen25vl import TEMPLATE
from cxr.vlm.tokens import small_tokenizer
from medground_data import make_queries_of, make_regions_of, read_source, regions_of, source_keys

CELLS = {
    "nucleus": {"one": "nucleus", "many": "nuclei", "parents": {"cell": "cells"}},
    "rod": {"one": "rod", "many": "rods", "parents": {"cell": "cells"}},
}
LEXICON = language.Lexicon(Facts(["nucleus", "rod"], CELLS), "nuclei")


@pytest.mark.parametrize(
    ("text", "words", "concepts", "morphology", "spatial", "skeleton"),
    [
        ("Find the two small round rods to the left of the largest nucleus.", 13, 5, 1, 1,
         "find the <number> <attribute> <attribute> <class> to the left of the <order> <class>"),
        ("Which nucleus is darkly stained and lies in the upper half?", 11, 2, 1, 2,
         "which <class> is <attribute> and lies in the upper half"),
        ("nuclei", 1, 1, 0, 0, "<class>"),
        ("region", 1, 0, 0, 0, "<class>"),
        ("Small, small and little cells", 5, 2, 0, 0, "<attribute> <attribute> and <attribute> <class>"),
        ("The clustered one beside it", 5, 1, 1, 1, "the <attribute> <number> beside it"),
    ],
)  # fmt: skip
def test_a_text_counted_by_hand(text, words, concepts, morphology, spatial, skeleton):
    found = language.measure_text(text, LEXICON)
    assert (found.words, found.concepts, found.morphology, found.spatial) == (words, concepts, morphology, spatial)
    assert found.skeleton == skeleton


def test_a_group_has_shares_of_its_queries():
    texts = ["the small rod", "the large rod", "the large rod", "a round nucleus beside it"]
    row = language.summarise([language.measure_text(text, LEXICON) for text in texts])
    assert row["queries"] == 4
    assert row["words"] == (3 + 3 + 3 + 5) / 4
    assert row["entity_density"] == pytest.approx(8 / 14)  # two of each text
    assert (row["morphology"], row["spatial"]) == (25, 0.25)
    assert (row["skeletons"], row["commonest"], row["distinct"]) == (2, 75, 75)


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables") / "cells"
    read_source(folder, source_keys(kind="cells", domain="nuclei"), cells=8, name="cells")
    make_regions_of(folder)
    lines = make_queries_of(folder, "cells")
    checks = {"read": ["size:small"], "ordinal": "", "unread": [], "judge": "rules", "verdict": "grounded"}
    checks["observed"] = [{"effect": 1.25, "blob_iou": 0.7}]
    write_lines(folder / "accepted.jsonl", [line | {"checks": checks} for line in lines[5:]])
    return folder, lines


def test_the_table_has_queries_beside_baselines_and_a_chart(cells, tmp_path):
    folder, lines = cells
    (tmp_path / "label_generic").mkdir()
    write_lines(tmp_path / "train.jsonl", lines)
    write_lines(tmp_path / "label_generic/train.jsonl", [line | {"query": "region"} for line in lines])
    language.run(
        lines=[str(tmp_path / "train.jsonl")], labels=[str(tmp_path / "label_generic/train.jsonl")],
        sources=[str(folder / "sources/00.h5")], entities=[], language=str(tmp_path / "language.tsv"),
        words=str(tmp_path / "words.tsv"), source_names=["cells"],
    )  # fmt: skip
    table = read_table(tmp_path / "language.tsv")
    assert table.select("set", "domain").rows() == [
        ("queries", "nuclei"), ("queries", "total"), ("generic", "nuclei"), ("generic", "total")
    ]  # fmt: skip
    ours, plain = table.row(0, named=True), table.row(2, named=True)
    assert ours["words"] == pytest.approx(np.mean([len(line["query"].split()) for line in lines]))
    assert (plain["entity_density"], plain["commonest"], plain["words"]) == (0, 100, 1)
    assert ours["spatial"] > 0
    texts = sorted({line["query"] for line in lines} | {"region"})
    told = pl.DataFrame({"query": texts, "concepts": [2] * len(texts)}, schema=schema(scispacy_entities.ENTITIES))
    write_table(tmp_path / "entities.parquet", told, scispacy_entities.ENTITIES)
    language.run(
        lines=[str(tmp_path / "train.jsonl")], labels=[str(tmp_path / "label_generic/train.jsonl")],
        sources=[str(folder / "sources/00.h5")], entities=[str(tmp_path / "entities.parquet")],
        language=str(tmp_path / "other.tsv"), words=str(tmp_path / "words.tsv"),
        source_names=["cells"],
    )  # fmt: skip
    other = read_table(tmp_path / "other.tsv")
    assert other.drop("entity_density").equals(table.drop("entity_density"))
    assert other["entity_density"].to_list() == pytest.approx([2 / one for one in other["words"]])
    counted = {row["word"]: row["queries"] for row in read_table(tmp_path / "words.tsv").to_dicts()}
    assert counted["the"] == sum(
        "the" in line["query"].lower().replace(",", " ").replace(".", " ").split() for line in lines
    )
    charts.run_language(language=str(tmp_path / "language.tsv"), chart=str(tmp_path / "chart.png"), dpi=60)
    heights = [bar.get_height() for bar in charts.draw_language(table).axes[0].patches]
    assert heights == [ours["entity_density"], plain["entity_density"]]
    assert cv2.imread(str(tmp_path / "chart.png")) is not None


def write_gallery(folder, out, rejected: list[tuple], pairs: list[dict]) -> list[dict]:
    import polars as pl

    from cxr.base.columns import schema

    write_table(out / "rejected.parquet", pl.DataFrame(rejected, schema=schema(REJECTED), orient="row"), REJECTED)
    write_lines(out / "pairs.jsonl", pairs)
    gallery.run(
        accepted=[str(folder / "accepted.jsonl")], queries=[str(folder / "queries/00.jsonl")],
        rejected=str(out / "rejected.parquet"), sensitivity=str(out / "pairs.jsonl"),
        regions=[str(folder / "regions/00.parquet")], sources=[str(folder / "sources/00.h5")], folder=str(out / "made"),
        source_names=["cells"], quality=95, seed=1,
    )  # fmt: skip
    return list(read_lines(out / "made/gallery.jsonl"))


def test_a_gallery_shows_accepted_rejected_and_pairs_with_their_reasons(cells, tmp_path):
    folder, lines = cells
    gone = [(one["query_id"], "cells", one["split"], one["image_id"], "II", "number", "3 stated") for one in lines[:3]]
    accepted = list(read_lines(folder / "accepted.jsonl"))
    first = accepted[1]
    other = next(one for one in accepted if one["image_id"] == first["image_id"] and one["regions"] != first["regions"])
    pair = {"source": "cells", "image_id": first["image_id"], "first": first["query_id"]}
    rows = write_gallery(folder, tmp_path, gone, [pair | {"second": other["query_id"], "same_class": False}])
    kinds = [row["kind"] for row in rows]
    assert kinds == ["accepted", "accepted", "accepted", *["rejected"] * kinds.count("rejected"), "pair"]
    known = {line["query"]: line for line in lines}
    for row in rows:
        for one in row["queries"]:
            assert one["regions"] == [at + 1 for at in known[one["query"]]["regions"]]
    assert rows[0]["verdict"] == "grounded"
    assert "contrast of the boxes: +1.2 SD" in rows[0]["reason"]
    assert rows[3]["verdict"] == "rejected by stage II"
    assert rows[3]["reason"] == "number 3 stated"
    assert rows[-1]["reason"] == "of two classes"
    assert len({row["file"] for row in rows}) == len(rows)
    assert all((tmp_path / "made" / row["file"]).is_file() for row in rows)


def test_the_answers_frame_is_drawn_where_its_box_lies(cells):
    folder, _ = cells
    rows = [row for row in regions_of(folder) if row["image_id"] == "cells0001"]
    image = np.full((256, 256, 3), 60, np.uint8)
    drawn = gallery.draw_case(image, rows, [[1]])
    chosen = np.abs(drawn.astype(int) - gallery.ANSWERS[0]).sum(axis=2) < 40
    wanted = [round(rows[1][side] * gallery.WIDTH / 256) for side in ("x1", "y1", "x2", "y2")]
    x1, y1, x2, y2 = wanted
    frame = np.zeros(chosen.shape, bool)
    frame[max(0, y1 - 3) : y2 + 3, max(0, x1 - 3) : x2 + 3] = True
    inside = frame.copy()
    inside[y1 + 4 : y2 - 4, x1 + 4 : x2 - 4] = False
    assert chosen[inside].mean() > 0.3
    assert (chosen & ~frame).sum() < 120  # its number
    assert not (np.abs(gallery.draw_case(image, rows, []).astype(int) - gallery.ANSWERS[0]).sum(axis=2) < 40).any()


def test_tokens_are_those_of_the_named_tokenizer(cells, tmp_path):
    """Of a tokenizer whose tokens are words, single digits and signs, a count by hand."""
    _, lines = cells
    few = [lines[0] | {"query": "the small rod", "boxes": [[1, 22, 333, 1000]]}]
    write_lines(tmp_path / "test.jsonl", few)
    question = "the small rod Answer with the bounding box"
    small_tokenizer([question], TEMPLATE).save_pretrained(tmp_path / "tokenizer")
    tokens.run(
        lines=[str(tmp_path / "test.jsonl")], tokens=str(tmp_path / "tokens.tsv"),
        tokenizer=str(tmp_path / "tokenizer"),
    )  # fmt: skip
    rows = read_table(tmp_path / "tokens.tsv").to_dicts()
    assert [(row["source"], row["split"], row["queries"]) for row in rows] == [
        ("cells", "test", 1),
        ("total", "test", 1),
    ]
    assert rows[0]["query_tokens"] == 3
    # at least the digits and the signs of {"bbox_2d": [1, 22, 333, 1000]}, a token each
    assert rows[0]["line_tokens"] > 3 + 10 + 14
    assert rows[0]["total_tokens"] == rows[0]["line_tokens"]
    with pytest.raises(UserError, match=r"medground\.dataset\.tokenizer: .* has no tokenizer"):
        tokens.load_tokenizer(str(tmp_path))


def test_the_papers_tables_stand_beside_ours(cells, tmp_path):
    folder, lines = cells
    verdict = {"checks": {"verdict": "grounded"}}
    rows = [row for split in ("train", "test") for row in _statistics(split, [
        line | verdict for line in lines if line["split"] == split
    ])]  # fmt: skip
    write_table(tmp_path / "statistics.tsv", pl.DataFrame(rows, schema=schema(STATISTICS)), STATISTICS)
    rate = dict.fromkeys(PASSED) | {
        "source": "cells",
        "split": "train",
        "stage": "I",
        "accepted_percentage": 98.5,
        "unjudged": 2,
    }
    rates = [rate, rate | {"source": "total", "split": "all", "stage": "III", "accepted_percentage": 70.0}]
    write_table(tmp_path / "rates.tsv", pl.DataFrame(rates, schema=schema(PASSED)), PASSED)
    paper_comparison.run(
        statistics=str(tmp_path / "statistics.tsv"), rates=str(tmp_path / "rates.tsv"),
        images=[str(folder / "sources/images.parquet")], excluded=[str(folder / "sources/excluded.parquet")],
        regions=[str(folder / "regions/00.parquet")], source_counts=str(tmp_path / "sources.tsv"),
        comparison=str(tmp_path / "paper.tsv"), source_names=["cells"],
    )  # fmt: skip
    found = {
        (row["table"], row["row"], row["column"]): (row["paper"], row["ours"], row["note"])
        for row in read_table(tmp_path / "paper.tsv").to_dicts()
    }
    train = [line for line in lines if line["split"] == "train"]
    images = read_table(folder / "sources/images.parquet")
    assert found["Table 1", "MS-CXR", "annotations"][:2] == (1162, None)
    made = sum(line["split"] != "validate" for line in lines)
    assert found["Table 1", "this dataset", "annotations"][:2] == (None, made)
    assert found["Table 2", "train", "queries"][:2] == (25420, len(train))
    assert found["Table 2", "train: nuclei", "share of the queries"][:2] == (20.5, 100)
    assert found["Table 5", "FHPsAOP", "train"][:2] == (5600, None)
    assert found["Table 5", "cells", "train"][:2] == (None, len(images.filter(split="train")))
    assert found["Table 6", "BBBC010, test", "kept after III"][:2] == (49.3, None)
    assert found["Table 6", "cells, train", "kept after I"] == (None, 98.5, "2 of them unjudged")
    assert found["Table 6", "Total, train", "kept after III"][:2] == (80.9, 70.0)
    counted = {(row["source"], row["split"]): row for row in read_table(tmp_path / "sources.tsv").to_dicts()}
    pairs = {(row["image_id"], row["label"]) for row in regions_of(folder)}
    assert counted["cells", "all"]["image_classes"] == len(pairs) > len(images) == counted["total", "all"]["images"]


def test_table_5_of_the_paper_sums_to_its_printed_totals():
    held = yaml.safe_load((ROOT / "resources/medground/paper_tables.yaml").read_text())["table5"]["rows"]
    sums = {split: sum(row[split] for row in held.values()) for split in ("train", "val", "test", "total")}
    assert sums == {"train": 52648, "val": 6936, "test": 4237, "total": 63550}


def test_the_chart_of_scores_has_a_bar_for_each_run_and_blind_answer(tmp_path):
    def row(by, table, model, source, value, low=None):
        return dict(zip(COMPARISON, (by, table, model, source, 9, value, low, low and low + 9), strict=True))

    rows = [
        row(by, table, model, source, 30.0 + at, 20.0 if by == "ours" else None)
        for table in ("iou", "sensitivity")
        for at, (by, model) in enumerate((("ours", "a"), ("blind", "largest"), ("ours", "b"), ("paper", "Big, base")))
        for source in ("cells", "total", "ils")
    ]
    figure = charts.draw_scores(pl.DataFrame(rows, schema=schema(COMPARISON)))
    for axes in figure.axes:
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b", "blind: largest"]
        assert [text.get_text().split("\n")[0] for text in axes.get_xticklabels()] == ["cells", "ils", "total"]
        assert sorted(round(bar.get_height()) for bar in axes.patches) == [30] * 3 + [31] * 3 + [32] * 3
        assert len(axes.lines) == 6  # an interval of each run and source
        assert not axes.texts
    nothing = charts.draw_scores(pl.DataFrame([one | {"value": 0.0} for one in rows], schema=schema(COMPARISON)))
    assert [[text.get_text() for text in axes.texts] for axes in nothing.axes] == [["all values are 0"]] * 2
