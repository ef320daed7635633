"""The accuracy command on clinical texts: counts known by hand, halves, floors of the given suite, the browser."""

import json
import sys
from math import isnan
from pathlib import Path

import pytest

from cxr.base.vocabulary import LUNGS, SIDES, VALID_LOCATIONS, kinds_under, side_of, zones_of
from cxr.language.reports import read_reports
from logic_cases import pairs_of

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import reports_accuracy as accuracy  # noqa: E402
import reports_clinical as clinical  # noqa: E402
import reports_floors as floors  # noqa: E402
import reports_labelled as labelled  # noqa: E402

READER = clinical.reader()
PLACES = sorted(VALID_LOCATIONS, key=len, reverse=True)
LEFT_BASE, RIGHT_BASE = "left lung base", "right lung base"


def finding(lesion: str, presence: str = "positive", certainty: str = "definitive", **more) -> dict:
    return {"lesion": lesion, "presence": presence, "certainty": certainty, "locations": None, **more}


def text(words: str, *findings: dict, keep=(), **more) -> labelled.Clinical:
    line = {"id": words, "category": "own", "language": "en", "text": words, "denied": []}
    return labelled.Clinical.model_validate(line | {"findings": findings, "affirmed_or_possible": list(keep)} | more)


def scored(case: labelled.Clinical) -> clinical.Score:
    return clinical.score(case, clinical.answer(case, READER))


def counts(case: labelled.Clinical) -> dict[str, int]:
    return {name: int(n) for name, n in zip(clinical.COUNTS, scored(case).row, strict=True) if n}


SMALL_LEFT = finding("effusion", locations=[LEFT_BASE], locations_alt=[["left lung"]])
KEPT = {"kept right": 1, "kept told": 1}
PLACED = {"certainty right": 1, "certainty told": 1, "places right": 1, "places told": 1}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (text("Small left effusion.", SMALL_LEFT, keep=["effusion"]), {"positive hit": 1, **PLACED, **KEPT}),
        (
            text("Possible right effusion.", SMALL_LEFT, keep=["effusion"]),
            {"positive hit": 1, "certainty told": 1, "places told": 1, **KEPT},
        ),
        (
            text("Possible effusion.", finding("effusion", certainty_free=True), keep=["effusion"]),
            {"positive hit": 1, **KEPT},
        ),
        # missed, and denied by a tuple without a place
        (
            text("No effusion.", SMALL_LEFT, keep=["effusion"]),
            {"positive missed": 1, "negative extra": 1, "kept told": 1, "global denials": 1},
        ),
        # missed, and denied by silence about a type in a text about the lungs
        (text("Lungs are clear.", SMALL_LEFT, keep=["effusion"]), {"positive missed": 1, "kept told": 1}),
        # a standing pneumonia is an opacity; what may be there is no extra
        (
            text("Left base pneumonia.", finding("pneumonia", locations=[LEFT_BASE]), keep=["pneumonia", "opacity"]),
            {"positive hit": 1, **PLACED, "kept right": 2, "kept told": 2},
        ),
        (text("Pneumonia.", keep=["pneumonia"]), KEPT),
        (text("Pneumonia.", unscored=["pneumonia"]), {}),
        (text("Pneumonia."), {"positive extra": 1}),
        # a disease that explains a finding has its certainty from the link
        (
            text(
                "Left basal opacity, likely atelectasis.",
                finding("opacity", certainty_free=True),
                finding("atelectasis", certainty="tentative", locations=[LEFT_BASE], inferred_from="opacity"),
            ),
            {"positive hit": 2, **PLACED},
        ),
        # negatives: normality words of the reading are no extra, others are
        (text("No edema.", finding("edema", "negative")), {"negative hit": 1}),
        (text("No edema.", denied=["edema"]), {}),
        (text("No edema."), {"negative extra": 1}),
        # a doubtful denial and "no new" deny nothing
        (text("Pneumonia is unlikely.", keep=["pneumonia"], unscored=["pneumonia"]), KEPT),
        # texts that should give nothing
        (
            text("Report pending.", category="no_report"),
            {"other right": 1, "other told": 1, "reason right": 1, "reason told": 1},
        ),
        (text("Small effusion.", category="no_report"), {"other told": 1, "reason told": 1}),
    ],
    ids=lambda value: value.text if isinstance(value, labelled.Clinical) else "",
)
def test_counts_known_by_hand(case, expected):
    assert counts(case) == expected


def test_errors_say_what_was_wanted():
    case = text("Possible right effusion. No edema.", SMALL_LEFT, finding("edema"), keep=["edema"])
    assert scored(case).errors == [
        ("missed", "edema", "missed positive"),
        ("extra", "edema", "extra negative"),
        ("certainty", "effusion", "certainty: wanted definitive"),
        ("place", "effusion", "places: wanted left lung base, read right lung base"),
        ("denial", "edema", "false denial by a tuple"),
    ]


def test_measures_and_their_intervals():
    cases = [text("Small left effusion.", SMALL_LEFT), text("Clear lungs.", SMALL_LEFT)]
    found = clinical.measures([scored(case).row for case in cases], 300)
    assert found["affirmed F1"] == (2 / 3, 0, 1, 2)
    assert found["places exact"][:2] == (1, 1)
    assert isnan(found["false denials"].value)
    assert dict(clinical.halves(7, 3)) == {"all": [0, 1, 2, 3, 4, 5, 6], "read": [0, 1, 3, 4, 6], "unread": [2, 5]}


def test_unscored_may_stand_alone_with_a_reason_or_as_a_key():
    for unscored in (["edema"], [{"lesion": "edema", "why": "x"}], {"edema": "x"}, None):
        assert text("Edema.", unscored=unscored).unscored == (("edema",) if unscored else ())


def written(tmp_path: Path, *cases: labelled.Clinical) -> str:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(case.model_dump_json() + "\n" for case in cases), encoding="utf-8")
    return str(path)


def test_the_command_prints_halves_and_hides_what_is_unread(tmp_path, capsys):
    wrong = [text(f"Opacity number {n} in both lungs.", SMALL_LEFT) for n in range(4)]
    page = tmp_path / "page.html"
    more = ["--unread-every", "2", "--errors", "9", "--browser", str(page), "--rounds", "5"]
    accuracy.main(["--clinical", written(tmp_path, *wrong), *more])
    printed = capsys.readouterr().out
    assert "findings F1" in printed
    assert "n=4" in printed
    assert printed.count("n=2") >= 2
    for told in (printed, page.read_text(encoding="utf-8")):
        assert [f"number {n} in" in told for n in range(4)] == [True, False, True, False]
    assert "effusion: missed positive" in page.read_text(encoding="utf-8")


def test_both_suites_make_one_page(tmp_path, capsys):
    report = tmp_path / "reports.jsonl"
    report.write_text(json.dumps({"findings": "No effusion.", "lesions": ["effusion"]}) + "\n", encoding="utf-8")
    page = tmp_path / "page.html"
    texts = written(tmp_path, text("Clear.", SMALL_LEFT))
    accuracy.main([str(report), "--clinical", texts, "--browser", str(page), "--rounds", "2"])
    assert "micro-F1" in capsys.readouterr().out
    html = page.read_text(encoding="utf-8")
    assert html.count("<article") == 2
    assert 'data-errors="any effusion"' in html


@pytest.mark.parametrize("arguments", [[], ["--cases", "x"], ["--clinical", "x", "--unread-every", "1"]])
def test_arguments_that_do_not_go_together(arguments, capsys):
    with pytest.raises(SystemExit):
        accuracy.main(arguments)
    assert "error:" in capsys.readouterr().err


def test_the_given_suite_meets_its_floors(shared):
    """The test checks only the sums: every fifth text stays unread."""
    texts = labelled.read(shared / "fixtures" / "clinical_reports.jsonl", labelled.Clinical)
    found = clinical.measures([scored(case).row for case in texts], 2)
    table = floors.read()
    verdicts = floors.held(found, table["clinical"], table["ceilings"])
    assert {row.name: row.word for row in verdicts if row.word != "met"} == {}


# ---- downstream: what the dataset says of the suite's texts ----------------------------------------------------------


def touching(place: str, told: tuple[str, ...]) -> bool:
    """Tell by name whether a place is in one of these, or one of these is in it."""
    lung = {zone for side in SIDES if place == f"{side} lung" for zone in zones_of(side)} | {place}
    return any(other in lung or (other in LUNGS and side_of(other) == side_of(place)) for other in told)


def falsely_denied(case: labelled.Clinical, seeds: int) -> list[tuple[str, str | None]]:
    """Return (lesion, place; None: the whole image) of negative pairs that deny what a text affirms or hedges."""
    line = read_reports.study_line(
        {"study_id": "s1", "subject_id": "p1", "findings": case.text, "impression": None}, READER
    )
    if not isinstance(line, dict):
        return []
    more = {key: value for key, value in line.items() if key != "tuples"}
    found = set()
    for seed in range(seeds):
        for pair in pairs_of(line["tuples"], seed=seed, more=more):
            if pair.seg or pair.target not in case.affirmed_or_possible:
                continue
            lesions = {pair.target, *kinds_under(pair.target)}
            told = [f.locations for f in case.findings if f.lesion in lesions and f.presence == "positive"]
            place = next((place for place in PLACES if place in pair.instruction), None)
            if place is None or any(touching(place, where) for where in told if where):
                found.add((pair.target, place))
    return sorted(found, key=str)


def test_the_dataset_denies_nothing_that_the_suite_affirms(shared):
    """The texts' tuples pass through masks and dataset, with all draws of 12 seeds; no text is shown."""
    texts = labelled.read(shared / "fixtures" / "clinical_reports.jsonl", labelled.Clinical)
    read = set(dict(clinical.halves(len(texts), 5))["read"])
    english = [(number in read, case) for number, case in enumerate(texts) if case.language == "en"]
    wrong = {(seen, case.id, *denied) for seen, case in english for denied in falsely_denied(case, 12)}
    kept = sum(len(case.affirmed_or_possible) for _, case in english)
    assert not [lesion for _, _, lesion, place in wrong if place is None]
    assert len({(name, lesion) for _, name, lesion, _ in wrong}) <= 0.01 * kept


def test_a_false_denial_would_be_seen():
    case = text("No effusion.", SMALL_LEFT, keep=["effusion"])
    assert ("effusion", None) in falsely_denied(case, 12)
    assert falsely_denied(text("Small left effusion.", SMALL_LEFT, keep=["effusion"]), 12) == []
