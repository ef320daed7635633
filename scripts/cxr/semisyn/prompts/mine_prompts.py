"""Mine phrases from the user's reports into a file that a person must review before use."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import yaml

from cxr.annotations.regions import image_name, read_annotations
from cxr.base.atomic import atomic
from cxr.base.columns import Column, schema
from cxr.base.paths import RESOURCES
from cxr.base.tables import read_lines, read_table, write_table
from cxr.semisyn.findings.catalogue import Catalogue, read_catalogue
from cxr.semisyn.findings.phrases import parse_prompt
from cxr.semisyn.prompts.mining import SECTIONS, SEVERAL, WORDS, Mention, Phrase, Vocabulary, mine_reports, pool_phrases
from cxr.semisyn.references import finding_by_label, map_patients

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


@dataclass(frozen=True)
class PromptsOptions:
    """least_patients: fewest patients of a phrase; least_phrases: fewest phrases, else a finding keeps its prompts.

    most: most phrases of a finding; reference: {name, format, path, image_id, role, classes}, name "" for none.
    """

    least_patients: int
    least_phrases: int
    most: int
    findings: list[str]
    reference: dict


def run(
    *, reports: list[str], images: str, prompts: str, table: str, counts: str, options: PromptsOptions,
    findings_file: str = "", reference: str = "",
) -> None:  # fmt: skip
    """Mine the ``reports`` (lines of the reports stage), and the phrases of a ``reference`` if given.

    Writes ``prompts`` (YAML, as semisyn.findings_file), ``table`` (:data:`PROMPTS`) and ``counts`` (:data:`COUNTS`).
    Raises UserError for a reference that cannot be read.
    """
    catalogue = read_catalogue(findings_file)
    words = read_vocabulary(catalogue)
    mined_reports = mine_reports((line for path in reports for line in _mined_sections(path)), words)
    reference_phrases, reference_left_out = _mine_reference(images, words, options) if reference else ([], Counter())
    outcomes = mined_reports.excluded + reference_left_out
    num_by_finding = Counter(mention.finding for mention in (*mined_reports.mentions, *reference_phrases))
    phrases = pool_phrases(mined_reports.mentions, reference_phrases, options.least_patients)
    used = Counter()
    for phrase in phrases:
        used[phrase.finding] += phrase.reports + phrase.reference
    for name in num_by_finding:
        outcomes[name, MINED], outcomes[name, FEW] = used[name], num_by_finding[name] - used[name]
    rows, mined = [], {}
    for name in options.findings:
        finding_phrases = [phrase for phrase in phrases if phrase.finding == name][: options.most]
        if len(finding_phrases) < options.least_phrases:
            rows += [
                _phrase_row(Phrase(name, *fields), catalogue, EMBEDDED) for fields in _embedded_phrases(catalogue, name)
            ]
        else:
            mined[name] = {"prompts": {phrase.phrase: round(phrase.weight, 6) for phrase in finding_phrases}}
            rows += [_phrase_row(phrase, catalogue, MINED) for phrase in finding_phrases]
    with atomic(prompts) as temporary:
        text = HEAD + yaml.safe_dump({"findings": mined}, sort_keys=False, allow_unicode=True, width=120)
        temporary.write_text(text, encoding="utf-8", newline="\n")
    write_table(table, pl.DataFrame(rows, schema=schema(PROMPTS), orient="row"), PROMPTS)
    lines = sorted((*key, number) for key, number in outcomes.items() if number)
    write_table(counts, pl.DataFrame(lines, schema=schema(COUNTS), orient="row"), COUNTS)


def read_vocabulary(catalogue: Catalogue) -> Vocabulary:
    """Return the words of the resource and of the prompts in use."""
    entries = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    dropped = frozenset(entries["dropped"])
    texts = " ".join(text for finding in catalogue.findings.values() for text in finding.prompts).lower()
    allowed_words = frozenset(entries["kept"]) | frozenset("".join(c if c.isalpha() else " " for c in texts).split())
    return Vocabulary(dropped, allowed_words - dropped)


def _mined_sections(path: str | Path) -> Iterable[dict]:
    return (line for line in read_lines(path) if line["section_name"] in SECTIONS)


def _mine_reference(images: str, words: Vocabulary, options: PromptsOptions) -> tuple[list[Mention], Counter]:
    """Return the phrases of a reference's images with exactly one finding, and {reason: excluded phrases}."""
    settings = options.reference
    regions, _ = read_annotations(f"semisyn.references.{settings['name']}.path", settings["path"], settings["format"])
    names = finding_by_label(settings["format"], settings["classes"], options.findings)
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


def _embedded_phrases(catalogue: Catalogue, name: str) -> list[tuple]:
    prompts = catalogue.findings[name].prompts
    total = sum(prompts.values())
    return [(text, 0, 0, 0, weight / total) for text, weight in prompts.items()]


def _phrase_row(phrase: Phrase, catalogue: Catalogue, origin: str) -> tuple:
    side, zone = parse_prompt(phrase.phrase, catalogue.parser)
    return (
        phrase.finding,
        phrase.phrase,
        phrase.weight,
        side,
        zone,
        phrase.reports,
        phrase.reference,
        phrase.patients,
        origin,
    )
