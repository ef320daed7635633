"""Mine phrases that describe findings from the user's reports into a file that a person must review before use."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import yaml

from cxr.annotations.regions import image_name, read_annotations
from cxr.base.atomic import atomic_file
from cxr.base.columns import read_columns
from cxr.base.resources import load_resource
from cxr.base.tables import read_lines, write_rows
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.findings.catalogue import Catalogue, parse_prompt, read_catalogue
from cxr.semisyn.references import finding_by_label, map_patients

POSITIVE, DEFINITIVE, DEFINITE = "positive", "definitive", "definite"
SECTIONS = ("findings", "impression", "last_paragraph")
"""Sections of a report that are mined, as in the paper."""
SEVERAL, UNSURE = "several findings in the report", "not certain"
SHARED, WORDS = "another finding in the sentence", "a word that is not listed"
JOINS, ARTICLE = ("in", "at", "of", "with", "within", "and", "or"), "the"


class Mention(NamedTuple):
    """A phrase that describes a finding, from a patient's report or from a data set of ``semisyn.references``."""

    finding: str
    phrase: str
    patient: str


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of phrases. dropped: words removed from sentences; allowed: the only words in phrases."""

    dropped: frozenset[str]
    allowed: frozenset[str]

    def phrase(self, sentence: str) -> str | None:
        """Return a sentence as a phrase without dropped words, or None if a word is not allowed or none is left."""
        words = [word for word in re.findall(r"[^\W_]+", sentence.lower()) if word not in self.dropped]
        if not words or any(word not in self.allowed for word in words):
            return None
        # no prepositions and articles at the ends, no repeated prepositions, no articles without a preposition
        content = [at for at, word in enumerate(words) if word not in (*JOINS, ARTICLE)]
        trimmed: list[str] = []
        for word in words[content[0] : content[-1] + 1] if content else []:
            follows_join = bool(trimmed) and trimmed[-1] in JOINS
            if word not in (*JOINS, ARTICLE) or follows_join == (word == ARTICLE):
                trimmed.append(word)
        text = " ".join(trimmed)
        return f"{text[:1].upper()}{text[1:]}." if text else None


def finding_of(entity: Mapping) -> str | None:
    """Return the finding of a statement in a report, which is its lesion type or its entity, or None if it has none."""
    return next((name for name in (entity["lesion_type"], entity["entity"]) if name in FINDINGS), None)


def mine_reports(lines: Iterable[Mapping], vocabulary: Vocabulary) -> tuple[list[Mention], Counter]:
    """Return the phrases of reports that state exactly one finding, and {(finding, reason): number of unused
    sentences}. A sentence is used if it has only allowed words, and all its positive statements are certain and name
    this finding."""
    mentions, excluded = [], Counter()
    for line in lines:
        positives = [row for row in (*line["tuples"], *line["other_tuples"]) if row["presence"] == POSITIVE]
        findings = {finding_of(row) for row in positives} - {None}
        by_sentence: dict[int, list[Mapping]] = {}
        for statement in line["tuples"]:
            if statement["presence"] == POSITIVE:
                by_sentence.setdefault(statement["sentence_index"], []).append(statement)
        for number, tuples in sorted(by_sentence.items()):
            names = [finding_of(statement) for statement in tuples]
            if not any(names):
                continue
            name, phrase = next(filter(None, names)), None
            if len(findings) > 1:
                reason = SEVERAL
            elif None in names:
                reason = SHARED
            elif any((statement["certainty"], statement["hedge"]) != (DEFINITIVE, DEFINITE) for statement in tuples):
                reason = UNSURE
            else:
                reason, phrase = WORDS, vocabulary.phrase(line["sentences"][number - 1])
            if phrase is None:
                excluded[name, reason] += 1
            else:
                mentions.append(Mention(name, phrase, line["subject_id"]))
    return mentions, excluded


class Phrase(NamedTuple):
    """A phrase, how often reports and the reference have it, its number of patients, and its weight as a prompt."""

    finding: str
    phrase: str
    reports: int
    reference: int
    patients: int
    weight: float


def pool_phrases(reports: Iterable[Mention], reference: Iterable[Mention], least: int) -> list[Phrase]:
    """Return the phrases of at least ``least`` patients, the most frequent first. For each finding, ``reports`` and
    ``reference`` have equal total weight (the paper). If one has no phrase, the other has the whole weight."""
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
    order = list(FINDINGS)
    return sorted(phrases, key=lambda phrase: (order.index(phrase.finding), -phrase.weight, phrase.phrase))


RESOURCE_FILES = ("semisyn/phrases.yaml", "columns/semisyn_prompts.toml")
MINED, EMBEDDED, FEW = "mined", "embedded", "phrase of too few patients"
PROMPTS = read_columns("semisyn_prompts", "prompts")
COUNTS = read_columns("semisyn_prompts", "counts")
HEAD = """\
# Phrases mined from reports. READ EACH OF THEM before use: delete what is no plain description of the finding, and
# anything that could reveal a patient. No stage uses this file by itself. After the review, name a copy of this file in
# semisyn.findings_file, or copy its prompts into the file named there. counts.tsv says why sentences were left out.
"""
MIN_PHRASES, MAX_PHRASES = 3, 40
"""Minimum and maximum number of phrases of a finding. A finding with fewer phrases keeps its prompts."""


def run(
    *, reports: list[str], images: str, prompts: str, table: str, counts: str, least_patients: int, findings: list[str],
    reference: dict, findings_file: str = "", annotations: str = "",
) -> None:  # fmt: skip
    """Mine the ``reports``, and the phrases of a reference (settings ``reference``, file ``annotations``). Write
    ``prompts``, a YAML file like semisyn.findings_file, and two tables. Raise UserError for an unreadable reference."""
    catalogue = read_catalogue(findings_file)
    vocabulary = read_vocabulary(catalogue)
    lines = (line for path in reports for line in read_lines(path) if line["section_name"] in SECTIONS)
    report_mentions, outcomes = mine_reports(lines, vocabulary)
    reference_mentions = []
    if annotations:
        reference_mentions, excluded = _mine_reference(images, vocabulary, reference, findings)
        outcomes += excluded
    phrases = pool_phrases(report_mentions, reference_mentions, least_patients)
    used = Counter()
    for phrase in phrases:
        used[phrase.finding] += phrase.reports + phrase.reference
    for name, number in Counter(mention.finding for mention in (*report_mentions, *reference_mentions)).items():
        outcomes[name, MINED], outcomes[name, FEW] = used[name], number - used[name]
    rows, mined = [], {}
    for name in findings:
        finding_phrases, origin = [phrase for phrase in phrases if phrase.finding == name][:MAX_PHRASES], MINED
        if len(finding_phrases) < MIN_PHRASES:
            embedded = catalogue.findings[name].prompts
            total, origin = sum(embedded.values()), EMBEDDED
            finding_phrases = [Phrase(name, text, 0, 0, 0, weight / total) for text, weight in embedded.items()]
        else:
            mined[name] = {"prompts": {phrase.phrase: round(phrase.weight, 6) for phrase in finding_phrases}}
        for _, text, *numbers, weight in finding_phrases:
            rows.append((name, text, weight, *parse_prompt(text, catalogue.parser), *numbers, origin))
    with atomic_file(prompts) as temporary:
        text = HEAD + yaml.safe_dump({"findings": mined}, sort_keys=False, allow_unicode=True, width=120)
        temporary.write_text(text, encoding="utf-8", newline="\n")
    write_rows(table, rows, PROMPTS)
    write_rows(counts, sorted((*key, number) for key, number in outcomes.items() if number), COUNTS)


def read_vocabulary(catalogue: Catalogue) -> Vocabulary:
    """Return the vocabulary: words of resources/semisyn/phrases.yaml, and of the prompts in use."""
    entries = load_resource(RESOURCE_FILES[0])
    dropped = frozenset(entries["dropped"])
    texts = " ".join(text for finding in catalogue.findings.values() for text in finding.prompts).lower()
    allowed_words = frozenset(entries["kept"]) | frozenset("".join(c if c.isalpha() else " " for c in texts).split())
    return Vocabulary(dropped, allowed_words - dropped)


def _mine_reference(
    images: str, words: Vocabulary, settings: dict, findings: list[str]
) -> tuple[list[Mention], Counter]:
    """Return the phrases of a reference's images with one finding, and {(finding, reason): number of unused
    phrases}. ``images``: table of the patients."""
    regions, _ = read_annotations(f"semisyn.references.{settings['name']}.path", settings["path"], settings["format"])
    names = finding_by_label(settings["format"], settings["classes"], findings)
    phrases_by_image: dict[str, set[tuple[str, str]]] = {}
    for region in regions:
        image = image_name(settings["image_id"], region.image)
        if (finding := names.get(region.label.lower())) and region.phrase:
            phrases_by_image.setdefault(image, set()).add((finding, region.phrase))
    patient = map_patients(phrases_by_image, images)
    mentions, excluded = [], Counter()
    for image, pairs in sorted(phrases_by_image.items()):
        has_several = len({finding for finding, _ in pairs}) > 1
        for finding, text in sorted(pairs):
            phrase = None if has_several else words.phrase(text)
            if phrase is None:
                excluded[finding, SEVERAL if has_several else WORDS] += 1
            else:
                mentions.append(Mention(finding, phrase, patient[image]))
    return mentions, excluded
