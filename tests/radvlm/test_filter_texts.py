"""The filter of reports, engine rules: 300 sentences by an author who has not seen the code, half of them unread."""

import json
from pathlib import Path

import pytest

from cxr.radvlm.filtered.engine import FilterOptions
from cxr.radvlm.filtered.rules import load_sentence_filter

TEXTS = Path(__file__).parents[1] / "texts"
FILTER = load_sentence_filter(FilterOptions("rules", "drop"))


@pytest.mark.parametrize(("name", "least_accepted"), [("filter_read", 146), ("filter_unread", 125)])
def test_filtered_sentences_are_among_the_accepted_texts(name, least_accepted):
    rows = [json.loads(line) for line in (TEXTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    num_accepted = sum((FILTER(row["text"]).text or "") in row["accepted"] for row in rows)
    assert len(rows) == 150
    assert num_accepted >= least_accepted
