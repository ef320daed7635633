"""Language measures on texts counted by hand, and the gallery: what is drawn is the query's answer."""

import cv2
import numpy as np
import pytest

from cxr.base.tables import read_lines, read_table, write_lines, write_table
from cxr.medground.dataset import gallery, language, language_chart
from cxr.medground.logic.facts import Facts
from cxr.medground.verification.verify import REJECTED
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
    found = language.measure(text, LEXICON)
    assert (found.words, found.concepts, found.morphology, found.spatial) == (words, concepts, morphology, spatial)
    assert found.skeleton == skeleton


def test_a_group_has_shares_of_its_queries():
    texts = ["the small rod", "the large rod", "the large rod", "a round nucleus beside it"]
    row = language.row_of([language.measure(text, LEXICON) for text in texts])
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
        sources=[str(folder / "sources/00.h5")], language=str(tmp_path / "language.tsv"),
        words=str(tmp_path / "words.tsv"), options=language.LanguageOptions(sources=["cells"], shards=["00"]),
    )  # fmt: skip
    table = read_table(tmp_path / "language.tsv")
    assert table.select("set", "domain").rows() == [
        ("queries", "nuclei"), ("queries", "total"), ("generic", "nuclei"), ("generic", "total")
    ]  # fmt: skip
    ours, plain = table.row(0, named=True), table.row(2, named=True)
    assert ours["words"] == pytest.approx(np.mean([len(line["query"].split()) for line in lines]))
    assert (plain["entity_density"], plain["commonest"], plain["words"]) == (0, 100, 1)
    assert ours["spatial"] > 0
    counted = {row["word"]: row["queries"] for row in read_table(tmp_path / "words.tsv").to_dicts()}
    assert counted["the"] == sum(
        "the" in line["query"].lower().replace(",", " ").replace(".", " ").split() for line in lines
    )
    language_chart.run(
        language=str(tmp_path / "language.tsv"), chart=str(tmp_path / "chart.png"),
        options=language_chart.ChartOptions(dpi=60),
    )  # fmt: skip
    heights = [bar.get_height() for bar in language_chart.drawn(table).axes[0].patches]
    assert heights == [ours["entity_density"], plain["entity_density"]]
    assert cv2.imread(str(tmp_path / "chart.png")) is not None


def shown(folder, out, rejected: list[tuple], pairs: list[dict], each: int = 2) -> list[dict]:
    import polars as pl

    from cxr.base.columns import schema

    write_table(out / "rejected.parquet", pl.DataFrame(rejected, schema=schema(REJECTED), orient="row"), REJECTED)
    write_lines(out / "pairs.jsonl", pairs)
    gallery.run(
        accepted=[str(folder / "accepted.jsonl")], made=[str(folder / "queries/00.jsonl")],
        rejected=str(out / "rejected.parquet"), sensitivity=str(out / "pairs.jsonl"),
        regions=[str(folder / "regions/00.parquet")], sources=[str(folder / "sources/00.h5")], folder=str(out / "made"),
        options=gallery.GalleryOptions(each=each, quality=95, seed=1, sources=["cells"], shards=["00"]),
    )  # fmt: skip
    return list(read_lines(out / "made/gallery.jsonl"))


def test_a_gallery_shows_accepted_rejected_and_pairs_with_their_reasons(cells, tmp_path):
    folder, lines = cells
    gone = [(one["query_id"], "cells", one["split"], one["image_id"], "II", "number", "3 stated") for one in lines[:3]]
    accepted = list(read_lines(folder / "accepted.jsonl"))
    first = accepted[1]
    other = next(one for one in accepted if one["image_id"] == first["image_id"] and one["regions"] != first["regions"])
    pair = {"source": "cells", "image_id": first["image_id"], "first": first["query_id"]}
    rows = shown(folder, tmp_path, gone, [pair | {"second": other["query_id"], "same_class": False}])
    kinds = [row["kind"] for row in rows]
    assert kinds == ["accepted", "accepted", *["rejected"] * kinds.count("rejected"), "pair"]
    known = {line["query"]: line for line in lines}
    for row in rows:
        for one in row["queries"]:
            assert one["regions"] == [at + 1 for at in known[one["query"]]["regions"]]
    assert rows[0]["verdict"] == "grounded"
    assert "contrast of the boxes: +1.2 SD" in rows[0]["reason"]
    assert rows[2]["verdict"] == "rejected by stage II"
    assert rows[2]["reason"] == "number 3 stated"
    assert rows[-1]["reason"] == "of two classes"
    assert len({row["file"] for row in rows}) == len(rows)
    assert all((tmp_path / "made" / row["file"]).is_file() for row in rows)


def test_the_answers_frame_is_drawn_where_its_box_lies(cells):
    folder, _ = cells
    rows = [row for row in regions_of(folder) if row["image_id"] == "cells0001"]
    image = np.full((256, 256, 3), 60, np.uint8)
    drawn = gallery.picture(image, rows, [[1]])
    chosen = np.abs(drawn.astype(int) - gallery.ANSWERS[0]).sum(axis=2) < 40
    wanted = [round(rows[1][side] * gallery.WIDTH / 256) for side in ("x1", "y1", "x2", "y2")]
    x1, y1, x2, y2 = wanted
    frame = np.zeros(chosen.shape, bool)
    frame[max(0, y1 - 3) : y2 + 3, max(0, x1 - 3) : x2 + 3] = True
    inside = frame.copy()
    inside[y1 + 4 : y2 - 4, x1 + 4 : x2 - 4] = False
    assert chosen[inside].mean() > 0.3
    assert (chosen & ~frame).sum() < 120  # its number
    assert not (np.abs(gallery.picture(image, rows, []).astype(int) - gallery.ANSWERS[0]).sum(axis=2) < 40).any()
