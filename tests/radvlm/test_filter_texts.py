"""The filter of reports, engine rules: sentences by authors who have not seen the code, some of them unread."""

import json
import re
from collections import Counter
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


@pytest.mark.parametrize(
    ("name", "num_rows", "most_wrong", "most_dropped"), [("changes_read", 350, 4, 29), ("changes_unread", 100, 10, 3)]
)
def test_filtered_sentences_state_no_change_and_lose_no_finding(name, num_rows, most_wrong, most_dropped):
    """A wrong sentence still compares, or lacks a word of its finding. Wordings are rarer than in real reports."""
    rows = [json.loads(line) for line in (TEXTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    counts: Counter[str] = Counter()
    for row in rows:
        text = FILTER(row["text"]).text
        lacks = [pattern for pattern in row["must_keep"] if not re.search(pattern, (text or "").lower())]
        if text is None:
            counts["dropped"] += not row["may_drop"]
        elif lacks or any(re.search(pattern, text.lower()) for pattern in row["must_not"]):
            counts["wrong"] += 1
    assert len(rows) == num_rows
    assert counts["wrong"] <= most_wrong, counts
    assert counts["dropped"] <= most_dropped, counts
