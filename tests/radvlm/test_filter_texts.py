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


@pytest.mark.parametrize(
    "text",
    [
        "The heart is enlarged at 16 cm.",
        "The aorta is enlarged at 4.5 cm and tortuous.",
        "The left lower lobe has collapsed and is airless.",
        "A mass replaces the right upper lobe and is spiculated.",
        "Left rib fracture without significant displacement.",
        "Pleural effusion with no significant mediastinal shift.",
    ],
)
def test_a_state_that_sounds_like_a_change_stays(text):
    assert FILTER(text).text == text


@pytest.mark.parametrize(
    ("text", "filtered"),
    [
        ("The pneumothorax has enlarged from the apex to the base.", "Pneumothorax."),
        ("The effusion has been reduced from a moderate to a small size.", "Effusion."),
        ("The catheter has migrated from the SVC into the right atrium.", "The catheter is in the right atrium."),
        ("ET tube has been pulled back and ends 2 cm above the carina.", "ET tube ends 2 cm above the carina."),
        ("Nodules have increased to 8 mm.", "Nodules are 8 mm."),
    ],
)
def test_only_a_device_is_where_it_moved_to(text, filtered):
    assert FILTER(text).text == filtered
