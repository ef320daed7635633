"""Writing sectioned radiology reports about given findings, with the ground truth of their statements.

The layout follows MIMIC-CXR. Most reports have FINDINGS and IMPRESSION, some only IMPRESSION, some neither section.
"""

import textwrap
from dataclasses import dataclass, field

import numpy as np

from cxr.base.resources import load_resource
from cxr.base.vocabulary import LESIONS, kinds_under

LAYOUTS = ("findings", "impression", "last_paragraph")  # section with the findings, the expected ``section_name``
DENIED = {
    "effusion": 0.80, "consolidation": 0.70, "edema": 0.45, "pneumonia": 0.30, "opacity": 0.25, "atelectasis": 0.10,
    "cardiomegaly": 0.15,
}  # fmt: skip
"""{lesion type: probability that a report denies it, if :func:`deniable` allows that}."""
RESOURCE_FILES = ("phantom/wording.yaml",)
WORDING: dict = load_resource(RESOURCE_FILES[0])
"""{name: sentence templates or words}; comments in resources/phantom/wording.yaml describe the templates."""
PLACES: dict[str, dict[str, list[str]]] = WORDING["places"]  # {location: its labels, adjectives and nouns}


@dataclass(frozen=True)
class Finding:
    """A finding to report. ``target``: one of the seven lesion types, ``nodule`` or ``scar``.

    place: key of ``PLACES``; hedge: certainty, one of ``definite``, ``strong`` and ``weak``.
    linked: described as an opacity that is, or may be, the target; hard: worded with terms that a lexicon may lack.
    """

    target: str
    place: str
    hedge: str = "definite"
    linked: bool = False
    hard: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The zone labels of the finding's location."""
        return tuple(PLACES[self.place]["labels"])


@dataclass
class Report:
    """A report: its text, and the statements of the section that contains the findings."""

    text: str
    section: str
    findings: list[dict]  # keys: target, entity, labels, certainty, hedge, place, hard, sentence
    negatives: list[str] = field(default_factory=list)  # explicitly denied lesion types; "no new X" does not deny X


def _pick(rng: np.random.Generator, options):
    return options[int(rng.integers(len(options)))]


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + "."


def _written(rng: np.random.Generator, kind: str, **words: str) -> str:
    return _sentence(_pick(rng, WORDING[kind]).format(**words))


def describe(finding: Finding, rng: np.random.Generator) -> str:
    """Write a sentence that states the finding."""
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
    template = _pick(rng, templates)  # before the words, because the order of random draws determines the cohort
    words |= {"noun": _pick(rng, place["nouns"]), "change": _pick(rng, WORDING["changes"])}
    return _sentence(template.format(**words))


def deniable(targets: set[str], rng: np.random.Generator) -> list[str]:
    """Return the lesion types that a report may deny although it states ``targets``, in the order of ``LESIONS``.

    A type is not denied if it or one of its subtypes is present. There is one exception, as in real reports: "no
    consolidation" may stand beside atelectasis or edema.
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
        template = _pick(rng, WORDING["nothing_new"])  # before its word, as in :func:`describe`
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
    """Format a section like MIMIC's texts: wrapped, with a space at the start of every line."""
    lines = [line for part in text.split("\n") for line in textwrap.wrap(part, 78)]
    if header in ("FINDINGS", "IMPRESSION"):
        return f" {header}: \n \n" + "".join(f" {line}\n" for line in lines) + " \n"
    return f" {header}:  " + "\n ".join(lines) + "\n \n"


def write_report(
    findings: list[Finding], rng: np.random.Generator, *, layout: str = "findings", devices: int = 0, view: str = "PA"
) -> Report:
    """Write a report about ``findings``; without any, the chest is normal.

    ``layout``: section for the findings, one of ``LAYOUTS``, else ValueError; ``devices``: number of device sentences.
    """
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
        # Without these two sections, the findings follow the first blank line of the last section.
        text += "".join(f" {line}\n" for line in textwrap.wrap(body, 78))
        return Report(text, layout, truth, denied)
    if rng.random() < 0.12:
        text += _block("WET READ", "___ ___ 4:12 PM Preliminary: lines and tubes as described below.")
    if layout == "findings":
        text += _block("FINDINGS", body)
        body = _summary(findings, rng)
    text += _block("IMPRESSION", body)
    return Report(text, layout, truth, denied)
