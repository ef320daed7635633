"""Report texts without identifiers: what is removed, what stays, and what a surrogate says."""

import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import polars as pl
import pytest
import yaml

from cxr.base.tables import read_table, write_lines
from cxr.language.reports import summarize_reports
from cxr.language.reports.decoding import decode, normalize_text
from cxr.language.reports.privacy.scrubbing import KINDS, add_counts, scrub
from cxr.language.reports.privacy.surrogates import find_dates, parse_date
from hospital import NO_TEXT, Study, _private_texts, write_report
from report_outcomes import outcomes

IDENTIFIERS = Path(__file__).parent / "identifiers"
TITLES = frozenset(
    (
        "dr",
        "prof",
        "med",
        "mr",
        "mrs",
        "ms",
        "frau",
        "herr",
        "hr",
        "fr",
        "st",
        "nurse",
        "pager",
        "praxis",
        "do",
        "md",
        "rn",
        "ma",
        "pa",
        "kollege",
        "dipl",
        "tel",
        "born",
        "to",
        "be",
        "re",
        "imaged",
        "hospital",
        "clinic",
        "baby",
        "boy",
        "road",
        "street",
        "avenue",
        "allee",
        "ring",
        "of",
        "at",
        "and",
    )
)
"""Words inside marked names and addresses that identify nobody."""


def marked_texts(name: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield (text, [(kind, identifier)]) of a file of reports whose identifiers are marked."""
    body = "\n".join(line for line in (IDENTIFIERS / name).read_text(encoding="utf-8").split("\n") if line[:2] != "# ")
    for block in re.split(r"^===$", body, flags=re.M):
        text, identifiers, opened, rest = "", [], [], block.strip("\n")
        while rest:
            if match := re.match(r"«(\w):", rest):
                opened.append((match[1], len(text)))
                rest = rest[match.end() :]
                continue
            if rest[0] == "»" and opened:
                kind, start = opened.pop()
                identifiers.append((kind, text[start:]))
            elif rest[0] not in "«»":
                text += rest[0]
            rest = rest[1:]
        yield text, identifiers


def left_over(text: str, identifiers: list[tuple[str, str]], scrubbed: str) -> tuple[int, list[str]]:
    """Return the number of marked identifiers, and those that the scrubbed text still has."""
    number, found = 0, []
    marked = [identifier for kind, identifier in identifiers if kind not in "SM"]
    for kind, identifier in identifiers:
        if kind in "SMO":  # whole sentences; orders are tested where they are recognised
            continue
        parts = [identifier] if kind in "DIPE" else re.findall(r"[^\W\d_]{2,}", identifier)
        for part in (part for part in parts if part.lower() not in TITLES):
            pattern = rf"(?<!\w){re.escape(part)}(?!\w)"
            harmless = len(re.findall(pattern, text)) - sum(len(re.findall(pattern, each)) for each in marked)
            number += 1
            if len(re.findall(pattern, scrubbed)) > harmless:
                found.append(part)
    return number, found


@pytest.mark.parametrize(("name", "most_missed"), [("read.txt", 0), ("unread.txt", 0.02)])
def test_identifiers_of_invented_reports_are_removed(name, most_missed):
    number, missed = 0, []
    for text, identifiers in marked_texts(name):
        count, found = left_over(text, identifiers, scrub(text, "p1").text)
        number, missed = number + count, missed + found
    assert number > 150
    assert len(missed) <= most_missed * number, missed


def test_a_hospitals_reports_hold_nothing_private():
    plan = yaml.safe_load((Path(__file__).parents[1] / "support/hospital.yaml").read_text(encoding="utf-8"))
    studies = [Study(number, entry) for number, entry in enumerate(plan["studies"], 1)]
    texts = 0
    for study in (study for study in studies if study.entry["style"] not in NO_TEXT):
        text = normalize_text(decode(write_report(study)))
        scrubbed = scrub(text, study.subject_id).text
        private = {part for part in (*_private_texts(study), study.patient.given_name) if part in text}
        assert not [part for part in private if part.casefold() in scrubbed.casefold()], study.study_id
        if "html" not in study.entry["style"]:
            assert all(sentence in scrubbed for sentence in study.entry["findings"].split("\n")), study.study_id
        texts += 1
    assert texts > 40


@pytest.mark.parametrize(
    "text",
    [
        "The lungs are clear. Heart size is normal. No pleural effusion or pneumothorax.",
        "Kerley B lines. Swan-Ganz catheter from the right; Dobbhoff tube. Bochdalek hernia. Prior Nissen.",
        "A 1.2 x 3.4 cm nodule, HU -20 to 60, T12 compression. ET tube 4.5 cm above the carina. CTR 0.55.",
        "COVID-19 pneumonia. SpO2 88%. 8 Fr pigtail catheter. Grade 2/6. C5-C7 fusion. Ribs 6 to 8.",
        "FINDINGS:\n1. Right lower lobe ASD.\n2. May represent atelectasis; Long line tip in the SVC.",
        "PORTABLE CHEST. MILD EDEMA. NO PNEUMOTHORAX. HEART SIZE UPPER LIMITS OF NORMAL. WHITE LINE OF PLEURA.",
        "lungs clear. young patient. brown secretions. rose since last film. <5 mm nodule; width > height.",
        "The nodule grew by +3.5 - 4.0 cm; base excess +2 - 3. Gram stain +1 / 2 / 3.",
        "67-year-old man. Dr. was not reached. The exam at 1630 hours was read as XXXX by XXXX.",
    ],
)
def test_what_identifies_nobody_stays(text):
    assert scrub(text, "p1").text == text


@pytest.mark.parametrize("number", ["+49 (0)7071 / 29-83411", "+1 (617) 555 - 0143", "+44 20 / 7946 0958"])
def test_a_telephone_number_is_replaced_whole(number):
    scrubbed = scrub(f"Any question: call {number} now.", "p1").text
    assert not set(re.findall(r"\d{3,}", number)) & set(re.findall(r"\d{3,}", scrubbed))


def test_a_surrogate_says_nothing_of_what_it_replaces():
    report = "{name} was called at {phone} on {day}. MRN {record}. {name} agrees. Prior of {earlier}: no effusion."
    one = report.format(
        name="Dr. Kowalczyk", phone="617-555-0184", day="3/14/2023", record="00482913", earlier="3/4/2023"
    )
    two = report.format(
        name="Dr. Okafor", phone="212-777-9931", day="9/30/1999", record="71120055", earlier="9/20/1999"
    )
    assert scrub(one, "p1").text == scrub(two, "p1").text
    assert scrub(one, "p1").text != scrub(one, "p2").text


def test_surrogates_have_the_form_of_what_they_replace():
    text = scrub(
        "Seen by Dr. Kowalczyk and DR. OKAFOR. Tel 0711-1238. Dr. Kowalczyk agrees. E-mail a.b@c-d.org.", "p"
    ).text
    match = re.fullmatch(
        r"Seen by Dr\. ([A-Z][a-z]+) and DR\. ([A-Z]+)\. Tel \d{4}-\d{4}\. Dr\. (\w+) agrees\. "
        r"E-mail \w\.\w@\w-\w\.\w{3}\.",
        text,
    )
    assert match, text
    assert match[1] == match[3] != match[2].capitalize()


@pytest.mark.parametrize(
    ("first", "second"),
    [("1/2/2020", "1/9/2020"), ("05.11.2023", "12.11.2023"), ("2019-05-06", "2019-05-13"),
     ("March 3, 2020", "March 10, 2020"), ("14. März 2022", "21. März 2022"), ("3-Feb-2014", "10-Feb-2014")],
)  # fmt: skip
def test_dates_keep_their_form_and_their_distance(first, second):
    text = scrub(f"Effusion on {first}, smaller on {second}.", "p7").text
    days = [parse_date(text[start:end]) for start, end in find_dates(text)]
    assert (days[1].value - days[0].value).days == 7
    assert not any(day in text for day in (first, second))
    assert re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", text)) == re.sub(
        r"[^\W\d_]+", "a", re.sub(r"\d+", "0", f"Effusion on {first}, smaller on {second}.")
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [("12/31/99", date(1999, 12, 31)), ("31.12.1999", date(1999, 12, 31)), ("Dec 31st, 1999", date(1999, 12, 31)),
     ("2024-02-29", date(2024, 2, 29)), ("02/30/2024", None), ("13/13/2013", None)],
)  # fmt: skip
def test_a_date_is_read_in_every_form(text, value):
    day = parse_date(text)
    assert (day and day.value) == value


def test_numbers_that_are_no_dates_stay():
    text = "may 2 be seen. 3/4 view. 1.2.3 and 10.11 cm. 4/5 of the lung. T2-10. version 1.10.2.4"
    assert [text[start:end] for start, end in find_dates(text)] == []


@pytest.mark.parametrize(
    "markup",
    ["<script>alert('x')</script>", "<STYLE type=x>p {}</STYLE>", "<!-- a -->", "<img src=x onerror=alert(1)>", "<b>",
     "<a href='http://x.y/z'>", "<?php x ?>", "<iframe src=//x></iframe>", "<script>never closed"],
)  # fmt: skip
def test_markup_is_removed(markup):
    scrubbed = scrub(f"Lungs are clear. {markup}", "p").text
    assert not re.search("<|alert|closed", scrubbed)
    assert scrubbed.startswith("Lungs are clear.")


def test_a_signature_that_tells_a_finding_keeps_it():
    scrubbed = scrub("Reported by Dr. Okafor: large left pleural effusion.", "p")
    assert "large left pleural effusion" in scrubbed.text
    assert "Okafor" not in scrubbed.text


def test_the_stage_reads_the_scrubbed_text(tmp_path):
    text = "FINDINGS: Dr. Geheimarzt told Frau Müller, MRN 7700008: small left effusion.\nDictated by: Dr. Geheimarzt"
    lines, _ = outcomes(tmp_path, [(text, None)])
    line = lines["0"]
    assert not re.search("Geheimarzt|Müller|7700008|Dictated", json.dumps(line, ensure_ascii=False))
    assert [each["lesion_type"] for each in line["tuples"]] == ["effusion"]
    start, end = line["tuples"][0]["span"]
    assert line["section_text"][start:end] == "effusion"
    assert line["removed"] == {"name": 2, "record": 1, "signature": 1}
    kept, _ = outcomes(tmp_path, [(text, None)], scrub=False)
    assert "Geheimarzt" in kept["0"]["section_text"]
    assert kept["0"]["removed"] == {}


def test_counts_add_up():
    assert add_counts({"name": 1, "date": 2}, {"date": 1, "web": 1}) == {"name": 1, "date": 3, "web": 1}
    assert set(scrub("Dr. Okafor, 3/4/2020.", "p").removed) <= set(KINDS)


def test_findings_of_public_reports_stay(shared, tmp_path):
    reports = [json.loads(line) for line in (shared / "fixtures/openi_reports.jsonl").open(encoding="utf-8")]
    texts = [(report["findings"], report["impression"]) for report in reports]
    changed = [
        pair
        for pair in texts
        if any(text and scrub(normalize_text(text), "p").text != normalize_text(text) for text in pair)
    ]
    assert len(changed) <= 0.005 * len(texts)
    scrubbed, kept = (outcomes(tmp_path, changed, scrub=flag)[0] for flag in (True, False))
    findings = [
        [
            [(each["lesion_type"], each["presence"], each["labels"]) for each in line["tuples"]]
            for line in lines.values()
        ]
        for lines in (scrubbed, kept)
    ]
    assert findings[0] == findings[1]


@pytest.mark.parametrize(("withheld", "words"), [(True, {"lungz"}), (False, {"lungz", "hrtt", "quastel"})])
def test_unknown_words_of_few_subjects_are_withheld(tmp_path, withheld, words):
    def line(number: int, word: str, sentence: str) -> dict:
        unknown = [{"word": word, "sentence_index": 1, "finding": True}]
        return {
            "study_id": f"s{number}",
            "subject_id": f"p{number}",
            "tuples": [],
            "unknown_words": unknown,
            "written": ["prose"],
            "handed_over": None,
            "sentences": [sentence],
        }

    lines = [line(number, "lungz", "Lungz are clear.") for number in range(5)]
    lines += [line(number, "hrtt", "The hrtt is large.") for number in range(5, 9)] * 2
    lines += [line(number, "quastel", "Told to Quastel.") for number in range(10, 20)]
    paths = {name: str(tmp_path / name) for name in ("reports.jsonl", "words.tsv", "reading.tsv", "excluded.parquet")}
    write_lines(paths["reports.jsonl"], lines, checked=True)
    pl.DataFrame(schema={"study_id": pl.String, "reason": pl.String}).write_parquet(paths["excluded.parquet"])
    options = summarize_reports.SummaryOptions(engine="rules", withheld=withheld, least_subjects=5)
    summarize_reports.run(
        reports=[paths["reports.jsonl"]], excluded=[paths["excluded.parquet"]], words=paths["words.tsv"],
        reading=paths["reading.tsv"], options=options,
    )  # fmt: skip
    assert set(read_table(paths["words.tsv"])["word"]) == words
