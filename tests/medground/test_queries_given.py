"""The engine table: texts made elsewhere, counted, matched to regions, and failing stage I where a box was moved."""

import json
import logging

import polars as pl
import pytest

from cxr.base.errors import UserError
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.medground.queries import make_queries
from cxr.medground.queries.written_queries import WrittenQuery, parse_raw_queries, read_written_queries, run_unused
from cxr.medground.verification import verify
from medground_data import (
    make_regions_of,
    queries_options,
    read_source,
    regions_of,
    source_keys,
    verification_options,
)  # fmt: skip


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    folder = tmp_path_factory.mktemp("given") / "cells"
    read_source(folder, source_keys(kind="cells", domain="nuclei"), cells=3, name="cells")
    return make_regions_of(folder)


def make_and_verify(folder, out, given) -> tuple[list[dict], list[dict], dict[str, tuple[str, str]]]:
    """Return candidates, unasked rows, and {rejected query: its stage and reason}."""
    common = {
        "sources": str(folder / "sources/00.h5"), "images": str(folder / "sources/images.parquet"),
        "regions": str(folder / "regions/00.parquet"),
    }  # fmt: skip
    make_queries.run_shard(
        **common, shifted=str(folder / "regions/00.shifted.parquet"), output=str(out / "q.jsonl"),
        unasked=str(out / "u.parquet"), text_files=[str(given)], **queries_options("cells", engine="table"),
    )  # fmt: skip
    verify.run_shard(
        **common, queries=str(out / "q.jsonl"), output=str(out / "v.jsonl"), rejected=str(out / "r.parquet"),
        **verification_options(),
    )  # fmt: skip
    gone = {row["query_id"]: (row["stage"], row["reason"]) for row in read_table(out / "r.parquet").to_dicts()}
    return list(read_lines(out / "q.jsonl")), read_table(out / "u.parquet").to_dicts(), gone


def grid(row: dict) -> list[int]:
    return [row[name] for name in ("gx1", "gy1", "gx2", "gy2")]


def test_texts_are_taken_all_and_missing_ones_are_counted(cells, tmp_path):
    rows = {row["region"]: row for row in regions_of(cells) if row["image_id"] == "cells0000"}
    moved = [grid(rows[0])[0] + 1, *grid(rows[0])[1:]]
    texts = [{"query": f"Show me the odd cell of kind {word}.", "regions": [0]} for word in "abcdefgh"]
    texts += [
        {"query": "Show me the odd cell over here.", "boxes": [grid(rows[1])]},
        {"query": "Show me the odd cell over there.", "boxes": [moved]},
        {"query": "Show me the odd cell far away.", "regions": [999]},
        {"query": "Show me the odd cell twice over.", "regions": [1, 1]},
    ]
    given = tmp_path / "texts.jsonl"
    lines = [one | {"image_id": "cells0000"} for one in texts]
    lines.append({"image_id": "elsewhere", "query": "x", "regions": [0]})
    given.write_text("".join(json.dumps(one) + "\n" for one in lines))
    candidates, unasked, gone = make_and_verify(cells, tmp_path, given)
    assert [line["query"] for line in candidates] == [one["query"] for one in texts]
    by_text = {line["query"]: line for line in candidates}
    assert by_text["Show me the odd cell over here."]["regions"] == [1]
    assert all(line["logic"] is None for line in candidates)
    for words, reason in (("over there", "box_moved"), ("far away", "unknown_target"), ("twice over", "target_twice")):
        assert gone[by_text[f"Show me the odd cell {words}."]["query_id"]] == ("I", reason)
    assert {row["image_id"] for row in unasked} == {"cells0001", "cells0002"}
    assert {row["reason"] for row in unasked} == {"not_given"}


def test_the_papers_raw_form_is_read_with_its_boxes(cells, tmp_path):
    rows = {row["region"]: row for row in regions_of(cells) if row["image_id"] == "cells0001"}
    folder = tmp_path / "raw"
    folder.mkdir()
    answer = json.dumps([{"bbox_2d": grid(rows[0])}, {"bbox_2d": grid(rows[1])}])
    (folder / "cells0001.txt").write_text(
        f"Question: Mark these two cells here.\nAnswer: {answer}\n\n"
        "Question: And this one, please?\nAnswer: the left one\n"
    )
    candidates, _, gone = make_and_verify(cells, tmp_path, folder)
    assert [line["regions"] for line in candidates] == [[0, 1], []]
    assert gone[candidates[1]["query_id"]] == ("I", "missing_field")


def test_raw_lines():
    text = 'Question: One?\nAnswer: {"bbox_2d": [1, 2, 3, 4]}\nQuestion: Two\n words?\nAnswer: nothing'
    assert list(parse_raw_queries(text)) == [
        WrittenQuery("One?", None, ((1, 2, 3, 4),)),
        WrittenQuery("Two words?", None, ()),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[1]",
        '{"query": "x", "regions": [0]}',
        '{"image_id": "a", "query": "x"}',
        '{"image_id": "a", "query": "x", "regions": ["b"]}',
    ],
)
def test_a_wrong_line_is_named(tmp_path, line):
    (tmp_path / "t.jsonl").write_text('{"image_id": "a", "query": "x", "regions": [0]}\n' + line + "\n")
    with pytest.raises(UserError, match=r"medground.queries.table: line 2 of t.jsonl"):
        read_written_queries(tmp_path / "t.jsonl")


def unused(folder, out, given, **more) -> list[tuple]:
    """Return the rows of the texts that became no candidate; ``more``: instead of the source's own files."""
    files = {"queries": out / "q.jsonl", "images": folder / "sources/images.parquet"}
    files |= {"excluded": folder / "sources/excluded.parquet"} | more
    run_unused(
        text_files=[str(given)], unused=str(out / "unused.parquet"), **{name: [str(at)] for name, at in files.items()}
    )
    return read_table(out / "unused.parquet").rows()


def test_a_text_about_an_image_that_no_source_has_is_a_row(cells, tmp_path, caplog):
    given = tmp_path / "texts.jsonl"
    lines = [{"image_id": name, "query": f"Show me the cell {at}.", "regions": [0]}
             for name, count in (("cells0000", 2), ("elsewhere", 2), ("gone", 1)) for at in range(count)]  # fmt: skip
    given.write_text("".join(json.dumps(one) + "\n" for one in lines))
    make_and_verify(cells, tmp_path, given)
    gone = tmp_path / "excluded.parquet"
    pl.DataFrame({"image_id": ["gone"]}).write_parquet(gone)
    with caplog.at_level(logging.WARNING, "cxr"):
        rows = unused(cells, tmp_path, given, excluded=gone)
    assert rows == [
        ("elsewhere", 0, "Show me the cell 0.", "unknown_image"),
        ("elsewhere", 1, "Show me the cell 1.", "unknown_image"),
        ("gone", 0, "Show me the cell 0.", "excluded"),
    ]  # fmt: skip
    assert "3 of 5 texts are about images that no source has" in caplog.text
    write_lines(tmp_path / "q.jsonl", list(read_lines(tmp_path / "q.jsonl"))[1:])
    with pytest.raises(AssertionError, match="1 of the user's 2 texts are missing among the image's queries"):
        unused(cells, tmp_path, given)


def test_an_image_without_regions_and_a_file_without_a_question_are_rows(cells, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "cells0001.txt").write_text("Which cell is it?")
    (folder / "cells0002.txt").write_text('Question: Mark this cell here.\nAnswer: {"bbox_2d": [1, 2, 3, 4]}\n')
    make_and_verify(cells, tmp_path, folder)
    write_lines(tmp_path / "none.jsonl", [])
    rows = unused(cells, tmp_path, folder, queries=tmp_path / "none.jsonl")
    assert [(row[0], row[3]) for row in rows] == [("cells0001", "no_text"), ("cells0002", "no_regions")]
