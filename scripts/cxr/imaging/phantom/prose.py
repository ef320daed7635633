"""Writing sectioned radiology reports about given findings, with the truth of their statements.

The layout is that of MIMIC-CXR. Most have FINDINGS and IMPRESSION, some only IMPRESSION, some neither.
"""

import textwrap
from dataclasses import dataclass, field

import numpy as np

from cxr.base.resources import load_resource
from cxr.base.vocabulary import LESIONS, kinds_under

LAYOUTS = ("findings", "impression", "last_paragraph")  # section with the findings: the expected ``section_name``
DENIED = {
    "effusion": 0.80, "consolidation": 0.70, "edema": 0.45, "pneumonia": 0.30, "opacity": 0.25, "atelectasis": 0.10,
    "cardiomegaly": 0.15,
}  # fmt: skip
"""Probability that a deniable lesion type is denied."""
RESOURCE_FILES = ("phantom/wording.yaml",)


WORDING: dict = load_resource(RESOURCE_FILES[0])
"""Sentences and words by kind; the file describes the templates."""
PLACES: dict[str, dict[str, list[str]]] = WORDING["places"]  # {place: its labels, adjectives and nouns}


@dataclass(frozen=True)
class Finding:
    """One thing to report. ``target`` is one of the seven lesion types, or ``nodule`` or ``scar``.

    linked: described as an opacity that is, or may be, the target; hard: the wording may be missing from a lexicon.
    """

    target: str
    place: str
    hedge: str = "definite"
    linked: bool = False
    hard: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The zone labels of the place."""
        return tuple(PLACES[self.place]["labels"])


@dataclass
class Report:
    """A text, and the statements in its section with the findings."""

    text: str
    section: str
    findings: list[dict]  # target, entity, labels, certainty, hedge, place, hard, sentence (as written)
    negatives: list[str] = field(default_factory=list)  # lesion types denied explicitly; "no new X" denies nothing


def _pick(rng: np.random.Generator, options):
    return options[int(rng.integers(len(options)))]


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + "."


def _written(rng: np.random.Generator, kind: str, **words: str) -> str:
    return _sentence(_pick(rng, WORDING[kind]).format(**words))


def describe(finding: Finding, rng: np.random.Generator) -> str:
    """Return one sentence that states the finding."""
    place = PLACES[finding.place]
    if finding.linked and not finding.hard:
        templates = WORDING["linked"][finding.hedge]
    else:
        kind = "hard" if finding.hard else "direct" if finding.hedge == "definite" else finding.hedge
        templates = WORDING["others" if finding.target in WORDING["others"] else kind][finding.target]
    adjective = _pick(rng, place["adjectives"])
    if finding.target == "effusion":  # a pleural effusion has a side, not a zone
        adjective = "bilateral" if len(finding.labels) > 1 else finding.labels[0].split()[0]
    size = _pick(rng, WORDING["sizes"].get(finding.target, WORDING["sizes"]["opacity"]))
    disease = "pulmonary edema" if finding.target == "edema" else finding.target
    words = {"adj": adjective, "size": size, "disease": disease}
    template = _pick(rng, templates)  # before the words: the order of the draws is part of the cohort
    words |= {"noun": _pick(rng, place["nouns"]), "change": _pick(rng, WORDING["changes"])}
    return _sentence(template.format(**words))


def deniable(targets: set[str], rng: np.random.Generator) -> list[str]:
    """Return the lesion types that a report with these positive targets may deny, in the order of ``LESIONS``.

    Neither a present type nor a kind above it is denied, with one exception that radiologists write: occasionally "no
    consolidation" together with atelectasis or edema.
    """
    allowed = []
    for lesion in LESIONS:
        under = set(kinds_under(lesion))
        if lesion == "consolidation" and rng.random() < 0.4:
            under -= {"atelectasis", "edema"}
        if lesion not in targets and not under & targets:
            allowed.append(lesion)
    return allowed


def _denials(targets: set[str], rng: np.random.Generator) -> tuple[list[str], list[str]]:
    denied_lesions = [lesion for lesion in deniable(targets, rng) if rng.random() < DENIED[lesion]]
    waiting = [denied_lesions[i] for i in rng.permutation(len(denied_lesions))]
    sentences = []
    while waiting:
        size = int(rng.integers(1, 4))
        group, waiting = waiting[:size], waiting[size:]
        terms = [_pick(rng, WORDING["negatable"][lesion]) for lesion in group]
        if len(terms) == 1 and rng.random() < 0.12:
            sentences.append(_written(rng, "resolved", term=terms[0]))
            continue
        if rng.random() < 0.5:
            terms.append("pneumothorax")
        comma = "," if len(terms) > 2 else ""
        listed = f"{', '.join(terms[:-1])}{comma} or {terms[-1]}" if len(terms) > 1 else terms[0]
        sentences.append(_written(rng, "negations", list=listed))
    return sentences, denied_lesions


def _body(findings: list[Finding], devices: int, rng: np.random.Generator) -> tuple[list[str], list[dict], list[str]]:
    targets = {finding.target for finding in findings}
    stated = [(describe(finding, rng), finding) for finding in findings]
    denials, denied = _denials(targets, rng)
    lungs = [text for text, finding in stated if finding.target != "cardiomegaly"]
    heart = [text for text, finding in stated if finding.target == "cardiomegaly"]
    sick = targets & set(LESIONS) - {"cardiomegaly", "effusion"}
    if not sick and not targets & {"nodule", "scar"} and rng.random() < 0.8:
        lungs.insert(0, _written(rng, "clear"))
    elif sick and "edema" not in sick and rng.random() < 0.3:
        lungs.append(_written(rng, "else_clear"))
    if not heart and rng.random() < 0.8:
        heart = [_written(rng, "normal_heart")]
    extras = [_written(rng, "devices") for _ in range(devices)]
    if rng.random() < 0.4:
        extras.append(_written(rng, "bones"))
    if not any("pneumothorax" in text for text in denials) and rng.random() < 0.6:
        denials.append(_written(rng, "pneumothorax"))
    idle = [lesion for lesion in ("consolidation", "effusion", "opacity") if lesion not in targets | set(denied)]
    if idle and rng.random() < 0.15:
        template = _pick(rng, WORDING["nothing_new"])  # before its word: the order of the draws is part of the cohort
        denials.append(_sentence(template.format(term=WORDING["negatable"][_pick(rng, idle)][0])))
    organs = heart + lungs + denials if rng.random() < 0.4 else lungs + denials + heart
    sentences = organs + extras if rng.random() < 0.6 else extras + organs
    truth = []
    for text, finding in stated:
        entity = "opacity" if finding.linked and not finding.hard else finding.target
        certainty = "definitive" if finding.hedge == "definite" else "tentative"
        row = {"target": finding.target, "entity": entity, "labels": list(finding.labels), "certainty": certainty}
        row |= {"hedge": finding.hedge, "place": finding.place, "hard": finding.hard, "sentence": text}
        truth.append(row)
    return sentences, truth, [lesion for lesion in LESIONS if lesion in denied]


def _summary(findings: list[Finding], rng: np.random.Generator) -> str:
    points = [finding for finding in findings if finding.target in LESIONS and not finding.hard]
    if not points:
        return _written(rng, "normal_impressions")
    sentences = [describe(finding, rng) for finding in points[:3]]
    if len(sentences) > 1 and rng.random() < 0.5:
        return "\n".join(f"{number}. {text}" for number, text in enumerate(sentences, 1))
    return " ".join(sentences)


def _block(header: str, text: str) -> str:
    """One section, wrapped like MIMIC's texts: every line begins with a space."""
    lines = [line for part in text.split("\n") for line in textwrap.wrap(part, 78)]
    if header in ("FINDINGS", "IMPRESSION"):
        return f" {header}: \n \n" + "".join(f" {line}\n" for line in lines) + " \n"
    return f" {header}:  " + "\n ".join(lines) + "\n \n"


def write_report(
    findings: list[Finding], rng: np.random.Generator, *, layout: str = "findings", devices: int = 0, view: str = "PA"
) -> Report:
    """Write a report about the findings (an empty list: a normal chest). Raises ValueError for an unknown layout."""
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, not {layout!r}")
    sentences, truth, denied = _body(findings, devices, rng)
    body = " ".join(sentences)
    exam = "CHEST (PORTABLE AP)" if view == "AP" else "CHEST (PA AND LAT)"
    text = " " * 33 + "FINAL REPORT\n" + _block("EXAMINATION", exam)
    text += _block("INDICATION", f"___-year-old patient with {_pick(rng, WORDING['reasons'])}.")
    if rng.random() < 0.5:
        text += _block("TECHNIQUE", f"{'Portable AP view' if view == 'AP' else 'PA and lateral views'} of the chest.")
    text += _block("COMPARISON", _pick(rng, WORDING["other_exams"]))
    if layout == "last_paragraph":
        # Without the two headers, the last section's text after its first blank line holds the findings.
        text += "".join(f" {line}\n" for line in textwrap.wrap(body, 78))
        return Report(text, layout, truth, denied)
    if rng.random() < 0.12:
        text += _block("WET READ", "___ ___ 4:12 PM Preliminary: lines and tubes as described below.")
    if layout == "findings":
        text += _block("FINDINGS", body)
        body = _summary(findings, rng)
    text += _block("IMPRESSION", body)
    return Report(text, layout, truth, denied)
