"""Mine phrases from the user's reports into a file that a person must review before use."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl
import yaml

from cxr.annotations.regions import image_name, read_annotations
from cxr.base.atomic import atomic_file
from cxr.base.columns import Column, schema
from cxr.base.paths import RESOURCES
from cxr.base.tables import read_lines, read_table, write_table
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.findings.catalogue import Catalogue, parse_prompt, read_catalogue
from cxr.semisyn.references import finding_by_label, map_patients

POSITIVE, DEFINITIVE, DEFINITE = "positive", "definitive", "definite"
SECTIONS = ("findings", "impression", "last_paragraph")
"""Sections of a report that are mined, as in the paper."""
SEVERAL, UNSURE, SHARED, WORDS, BARE = (
    "several findings in the report", "not certain", "another finding in the sentence", "a word that is not listed",
    "does not name the finding",
)  # fmt: skip


class Mention(NamedTuple):
    """A phrase that describes a finding in a patient's report or in a reference."""

    finding: str
    phrase: str
    patient: str


@dataclass(frozen=True)
class Vocabulary:
    """``dropped``: words removed from a sentence; ``allowed``: the only words that a phrase may have."""

    dropped: frozenset[str]
    allowed: frozenset[str]

    def phrase(self, sentence: str) -> str | None:
        """Return a sentence as a phrase without dropped words; None if a word is not allowed, or none is left."""
        words = [word for word in re.findall(r"[^\W_]+", sentence.lower()) if word not in self.dropped]
        if not words or any(word not in self.allowed for word in words):
            return None
        text = " ".join(_trim_words(words))
        return f"{text[:1].upper()}{text[1:]}." if text else None


JOINS, ARTICLE = ("in", "at", "of", "with", "within", "and", "or"), "the"


def _trim_words(words: list[str]) -> list[str]:
    """Remove prepositions and articles at both ends, repeated prepositions, and articles without a preposition."""
    small = (*JOINS, ARTICLE)
    while words and words[0] in small:
        words = words[1:]
    while words and words[-1] in small:
        words = words[:-1]
    trimmed: list[str] = []
    for word in words:
        before = trimmed[-1] if trimmed else ""
        if word in small and before in JOINS and word != ARTICLE:
            continue
        if word != ARTICLE or before in JOINS:
            trimmed.append(word)
    return trimmed


def finding_of(entity: Mapping) -> str | None:
    """Return the finding of a report's tuple: its lesion type, or its entity if that names a finding; else None."""
    return next((name for name in (entity["lesion_type"], entity["entity"]) if name in FINDINGS), None)


def mine_reports(lines: Iterable[Mapping], vocabulary: Vocabulary) -> tuple[list[Mention], Counter]:
    """Return the phrases of reports with exactly one positive finding, and {(finding, reason): excluded sentences}.

    ``lines``: of the reports stage. A sentence is used if all its positive tuples are certain and of that finding, and
    all its words are allowed.
    """
    mentions, excluded = [], Counter()
    for line in lines:
        positives = [
            statement for statement in (*line["tuples"], *line["other_tuples"]) if statement["presence"] == POSITIVE
        ]
        names = {finding_of(statement) for statement in positives} - {None}
        by_sentence: dict[int, list[Mapping]] = {}
        for statement in line["tuples"]:
            if statement["presence"] == POSITIVE:
                by_sentence.setdefault(statement["sentence_index"], []).append(statement)
        for number, tuples in sorted(by_sentence.items()):
            name = next((finding_of(statement) for statement in tuples if finding_of(statement)), None)
            if name is None:
                continue
            why = _reason_unfit(tuples, names)
            phrase = None if why else vocabulary.phrase(line["sentences"][number - 1])
            if phrase is None:
                excluded[name, why or WORDS] += 1
            else:
                mentions.append(Mention(name, phrase, line["subject_id"]))
    return mentions, excluded


def _reason_unfit(tuples: list[Mapping], names: set[str]) -> str:
    """Return why a sentence is not mined, "" if it is."""
    if len(names) > 1:
        return SEVERAL
    if any(finding_of(statement) is None for statement in tuples):
        return SHARED
    if any(statement["certainty"] != DEFINITIVE or statement["hedge"] != DEFINITE for statement in tuples):
        return UNSURE
    return ""


class Phrase(NamedTuple):
    """A phrase with its counts in reports and in the reference, its number of patients and its weight."""

    finding: str
    phrase: str
    reports: int
    reference: int
    patients: int
    weight: float


def pool_phrases(reports: Iterable[Mention], reference: Iterable[Mention], least: int) -> list[Phrase]:
    """Return the phrases of at least ``least`` patients, the most frequent first.

    Reports and reference have equal total weight (the paper); if one has no phrase of a finding, the other has it all.
    """
    counts = [Counter((mention.finding, mention.phrase) for mention in pool) for pool in (reports, reference)]
    patients: dict[tuple[str, str], set[str]] = {}
    for mention in (*reports, *reference):
        patients.setdefault((mention.finding, mention.phrase), set()).add(mention.patient)
    frequent_keys = [key for key, subjects in patients.items() if len(subjects) >= least]
    phrases = []
    for finding in FINDINGS:
        finding_keys = [key for key in frequent_keys if key[0] == finding]
        sums = [sum(count[key] for key in finding_keys) for count in counts]
        pools = sum(total > 0 for total in sums)
        for key in finding_keys:
            shares = (count[key] / total / pools for count, total in zip(counts, sums, strict=True) if total)
            phrases.append(Phrase(*key, counts[0][key], counts[1][key], len(patients[key]), sum(shares)))
    order = {name: at for at, name in enumerate(FINDINGS)}
    return sorted(phrases, key=lambda phrase: (order[phrase.finding], -phrase.weight, phrase.phrase))


RESOURCE_FILES = ("semisyn/phrases.yaml",)
MINED, EMBEDDED, FEW = "mined", "embedded", "phrase of too few patients"
PROMPTS = {
    "finding": Column(pl.String, "Finding."),
    "phrase": Column(pl.String, "Phrase, without sizes, severities, changes and uncertainty."),
    "weight": Column(pl.Float64, "Probability of drawing it."),
    "side": Column(pl.String, "Side that the placement reads from it: right, left, both or any."),
    "zone": Column(pl.String, "Zone that it reads from it; empty for none."),
    "reports": Column(pl.Int64, "Report sentences with this phrase."),
    "reference": Column(pl.Int64, "Boxes of the reference with this phrase."),
    "patients": Column(pl.Int64, "Patients with this phrase."),
    "origin": Column(pl.String, "mined, or embedded if too few phrases of the finding were found."),
}
COUNTS = {
    "finding": Column(pl.String, "Finding."),
    "outcome": Column(pl.String, "mined, or the reason why a sentence gave no phrase."),
    "sentences": Column(pl.Int64, "Sentences that state the finding."),
}
HEAD = """\
# Phrases mined from reports. READ EACH OF THEM before use: delete what is no plain description of the finding, and
# anything that could tell of a patient. Nothing uses this file by itself. Then name a copy in semisyn.findings_file, or
# put the prompts of each finding into the one that is there. counts.tsv says what was left out and why.
"""


MIN_PHRASES, MAX_PHRASES = 3, 40
"""Fewest phrases of a finding, else it keeps its prompts; most phrases."""


def run(
    *, reports: list[str], images: str, prompts: str, table: str, counts: str, least_patients: int, findings: list[str],
    reference: dict, findings_file: str = "", annotations: str = "",
) -> None:  # fmt: skip
    """Mine the ``reports`` (lines of the reports stage), and the phrases of a ``reference`` if one is given.

    ``least_patients``: fewest patients of a phrase; ``reference``: {name, format, path, image_id, role, classes} of the
    file ``annotations``.

    Writes ``prompts`` (YAML, as semisyn.findings_file), ``table`` (:data:`PROMPTS`) and ``counts`` (:data:`COUNTS`).
    Raises UserError for a reference that cannot be read.
    """
    catalogue = read_catalogue(findings_file)
    words = read_vocabulary(catalogue)
    lines = (line for path in reports for line in read_lines(path) if line["section_name"] in SECTIONS)
    report_phrases, outcomes = mine_reports(lines, words)
    reference_phrases, reference_left_out = [], Counter()
    if annotations:
        reference_phrases, reference_left_out = _mine_reference(images, words, reference, findings)
    outcomes += reference_left_out
    num_by_finding = Counter(mention.finding for mention in (*report_phrases, *reference_phrases))
    phrases = pool_phrases(report_phrases, reference_phrases, least_patients)
    used = Counter()
    for phrase in phrases:
        used[phrase.finding] += phrase.reports + phrase.reference
    for name in num_by_finding:
        outcomes[name, MINED], outcomes[name, FEW] = used[name], num_by_finding[name] - used[name]
    rows, mined = [], {}
    for name in findings:
        finding_phrases, origin = [phrase for phrase in phrases if phrase.finding == name][:MAX_PHRASES], MINED
        if len(finding_phrases) < MIN_PHRASES:
            embedded = catalogue.findings[name].prompts
            total, origin = sum(embedded.values()), EMBEDDED
            finding_phrases = [Phrase(name, text, 0, 0, 0, weight / total) for text, weight in embedded.items()]
        else:
            mined[name] = {"prompts": {phrase.phrase: round(phrase.weight, 6) for phrase in finding_phrases}}
        for phrase in finding_phrases:
            side_zone, numbers = parse_prompt(phrase.phrase, catalogue.parser), phrase[2:5]
            rows.append((name, phrase.phrase, phrase.weight, *side_zone, *numbers, origin))
    with atomic_file(prompts) as temporary:
        text = HEAD + yaml.safe_dump({"findings": mined}, sort_keys=False, allow_unicode=True, width=120)
        temporary.write_text(text, encoding="utf-8", newline="\n")
    write_table(table, pl.DataFrame(rows, schema=schema(PROMPTS), orient="row"), PROMPTS)
    count_rows = sorted((*key, number) for key, number in outcomes.items() if number)
    write_table(counts, pl.DataFrame(count_rows, schema=schema(COUNTS), orient="row"), COUNTS)


def read_vocabulary(catalogue: Catalogue) -> Vocabulary:
    """Return the words of the resource and of the prompts in use."""
    entries = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    dropped = frozenset(entries["dropped"])
    texts = " ".join(text for finding in catalogue.findings.values() for text in finding.prompts).lower()
    allowed_words = frozenset(entries["kept"]) | frozenset("".join(c if c.isalpha() else " " for c in texts).split())
    return Vocabulary(dropped, allowed_words - dropped)


def _mine_reference(
    images: str, words: Vocabulary, settings: dict, findings: list[str]
) -> tuple[list[Mention], Counter]:
    """Return the phrases of a reference's images with exactly one finding, and {reason: excluded phrases}."""
    regions, _ = read_annotations(f"semisyn.references.{settings['name']}.path", settings["path"], settings["format"])
    names = finding_by_label(settings["format"], settings["classes"], findings)
    per_image: dict[str, set[tuple[str, str]]] = {}
    for region in regions:
        image = image_name(settings["image_id"], region.image)
        if (finding := names.get(region.label.lower())) and region.phrase:
            per_image.setdefault(image, set()).add((finding, region.phrase))
    patient = map_patients(per_image, [read_table(images)])
    mentions, left_out = [], Counter()
    for image, pairs in sorted(per_image.items()):
        several = len({finding for finding, _ in pairs}) > 1
        for finding, text in sorted(pairs):
            phrase = None if several else words.phrase(text)
            if phrase is None:
                left_out[finding, SEVERAL if several else WORDS] += 1
            else:
                mentions.append(Mention(finding, phrase, patient[image]))
    return mentions, left_out
