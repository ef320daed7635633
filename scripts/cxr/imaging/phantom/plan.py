"""Planning the studies, findings and files of the embedded (synthetic) cohort, before any pixel is drawn."""

from dataclasses import dataclass

import numpy as np

from cxr.base.resources import load_resource
from cxr.base.seeds import stable_hash
from cxr.base.vocabulary import LESIONS, SPLITS
from cxr.imaging.phantom.prose import LAYOUTS, Finding

SHARES = {"train": 0.6, "validate": 0.2, "test": 0.2}
FRONTAL_VIEWS = (["PA"], ["AP"], ["PA", "AP"], ["AP", "AP"])
STRENGTHS = (0.65, 0.85, 1.0, 1.2)  # density of a study's painted lesions, from hardly visible to obvious

RESOURCE_FILES = ("phantom/plan.yaml",)
_TABLES = load_resource(RESOURCE_FILES[0])
RECIPES = tuple(
    tuple((target, tuple(places)) for finding in recipe for target, places in finding.items())
    for recipe in _TABLES["recipes"]
)
"""Sets of findings (target, possible places) for a study. The first six cover all seven types and a normal chest."""
LOOKALIKES = tuple(_TABLES["lookalikes"])  # lesion types that a reader may confuse
ENCODINGS = tuple(_TABLES["encodings"])  # encodings of valid files; see :mod:`cxr.imaging.phantom.files`
BROKEN_EXTRA, BROKEN_ALONE = tuple(_TABLES["broken_extra"]), tuple(_TABLES["broken_alone"])
"""Faults of images in studies that also have a valid image, and faults of a study's only image."""
REPORTLESS = tuple(_TABLES["reportless"])


@dataclass(frozen=True)
class ImagePlan:
    """An image file to write. ``fault``: its fault, such as ``truncated``; empty for a valid frontal image."""

    image_id: str
    view: str
    encoding: str
    fault: str = ""


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """A study: patient, painted and reported findings, and files.

    hidden: indices of findings that are reported but not painted, because weakly hedged findings are often absent.
    unreported: lesions that are painted but not reported. misread: (index of a finding, lesion painted in its place),
    because readers err. strength: contrast of the lesions. report: fault of the report, one of ``REPORTLESS``, or "".
    """

    study_id: str
    subject_id: str
    split: str
    acquired: str
    findings: tuple[Finding, ...] = ()
    hidden: frozenset[int] = frozenset()
    unreported: tuple[Finding, ...] = ()
    misread: tuple[tuple[int, str], ...] = ()
    strength: float
    layout: str
    images: tuple[ImagePlan, ...]
    report: str = ""

    @property
    def painted(self) -> tuple[str, ...]:
        """The painted lesion type of each finding, then the types of unreported lesions."""
        targets = [finding.target for finding in (*self.findings, *self.unreported)]
        return tuple(dict(self.misread).get(number, target) for number, target in enumerate(targets))


def generator(seed: int, *parts: object) -> np.random.Generator:
    """Return a NumPy generator seeded by ``seed`` and ``parts``, which makes it independent of other generators."""
    return np.random.default_rng(stable_hash("phantom", seed, *parts))


def split_subjects(subjects: list[str]) -> dict[str, str]:
    """Assign 60, 20 and 20 % of the subjects to train, validate and test, at least one to validate and one to test."""
    small = {name: max(1, round(SHARES[name] * len(subjects))) for name in SPLITS[1:]}
    names = ["validate"] * small["validate"] + ["test"] * small["test"]
    return dict(zip(subjects, names + ["train"] * (len(subjects) - len(names)), strict=True))


def _findings(number: int, rng: np.random.Generator) -> tuple[Finding, ...]:
    findings: list[Finding] = []
    for name, places in RECIPES[number % len(RECIPES)]:
        target, _, linked = name.partition(" ")
        free = [place for place in places if place not in {previous.place for previous in findings}] or list(places)
        hedge = str(rng.choice(["definite", "strong", "weak"], p=[0.72, 0.2, 0.08]))
        if linked:
            hedge = str(rng.choice(["definite", "strong", "weak"], p=[0.15, 0.65, 0.2]))
        if target not in LESIONS:
            hedge = "definite"
        hard = target in LESIONS and hedge == "definite" and not linked and rng.random() < 0.08
        findings.append(Finding(target, free[int(rng.integers(len(free)))], hedge, bool(linked), bool(hard)))
    return tuple(findings)


def healthy_plans(seed: int, count: int) -> list[StudyPlan]:
    """Return a study of one PA image without findings for each of ``count`` more patients, of whom 3/5 are in train."""
    plans = []
    for number in range(count):
        subject = f"SYNH{number + 1:05d}"
        study, split = f"{subject}-1", ("train", "validate", "train", "test", "train")[number % 5]
        images = (ImagePlan(f"{study}-1", "PA", ENCODINGS[number % len(ENCODINGS)]),)
        layout, acquired = _layout(generator(seed, study, "plan")), _acquired(number)
        names = {"study_id": study, "subject_id": subject, "split": split, "acquired": acquired}
        plans.append(StudyPlan(**names, strength=STRENGTHS[0], layout=layout, images=images))
    return plans


def _acquired(number: int) -> str:
    return f"2199-{1 + number % 12:02d}-{1 + number % 28:02d}T{6 + number % 12:02d}:{number % 60:02d}:00"


def _layout(rng: np.random.Generator) -> str:
    return str(rng.choice(LAYOUTS, p=[0.66, 0.22, 0.12]))


def make_plan(seed: int, subjects: int, studies: int) -> list[StudyPlan]:
    """Return the studies of the cohort, sorted by id; ``studies`` >= ``subjects`` >= 3.

    For tests, one study in 16 has only a faulty image, and one in 22 a report that is missing or has no findings.
    """
    people = [f"SYN{number:04d}" for number in range(1, subjects + 1)]
    shuffled = [people[i] for i in generator(seed, "split").permutation(subjects)]
    splits = split_subjects(shuffled)
    second_owners = generator(seed, "owners").integers(0, subjects, max(0, studies - subjects))
    owners = people + [people[int(i)] for i in second_owners]
    # Faults that exclude a study go to subjects' further studies first, so that few patients are lost.
    order = sorted(generator(seed, "faults").permutation(len(owners)), key=lambda number: number < subjects)
    alone = {int(order[i]): BROKEN_ALONE[i % len(BROKEN_ALONE)] for i in range(len(owners) // 16)}
    intact = [int(i) for i in order if int(i) not in alone]
    mute = {intact[i]: REPORTLESS[i % len(REPORTLESS)] for i in range(len(owners) // 22)}
    num_extra = max(2, round(len(owners) * 12 / 66))
    extra = {intact[-1 - i]: BROKEN_EXTRA[i % len(BROKEN_EXTRA)] for i in range(num_extra)}
    plans: list[StudyPlan] = []
    num_studies_by_subject: dict[str, int] = {}
    recipe = encoding = 0
    for number, subject in enumerate(owners):
        num_studies_by_subject[subject] = num_studies_by_subject.get(subject, 0) + 1
        study = f"{subject}-{num_studies_by_subject[subject]}"
        rng = generator(seed, study, "plan")
        findings = _findings(recipe, rng)
        views = ["AP"] if number in alone else FRONTAL_VIEWS[int(rng.choice(4, p=[0.5, 0.34, 0.08, 0.08]))]
        images = []
        for index, view in enumerate(views, 1):
            name = ENCODINGS[encoding % len(ENCODINGS)]
            images.append(ImagePlan(f"{study}-{index}", view, name, alone.get(number, "")))
            encoding += number not in alone
        if number in extra:
            images.append(ImagePlan(f"{study}-{len(images) + 1}", "PA", "explicit_12", extra[number]))
        if number not in alone and number not in mute:
            recipe += 1
        hidden = frozenset(i for i, f in enumerate(findings) if f.hedge == "weak" and rng.random() < 0.5)
        unreported: tuple[Finding, ...] = ()
        if findings and rng.random() < 0.06 and not any(f.target in ("opacity", "consolidation") for f in findings):
            unreported = (Finding("opacity", str(rng.choice(["left upper", "right upper"]))),)
        # not in the first round of recipes, so that a small cohort has every lesion type correctly reported
        reader = generator(seed, study, "misread")
        misread = tuple(
            (index, str(reader.choice([lesion for lesion in LOOKALIKES if lesion != finding.target])))
            for index, finding in enumerate(findings if recipe > len(RECIPES) else ())
            if finding.target in LOOKALIKES and reader.random() < 0.2
        )
        strength = STRENGTHS[int(rng.integers(len(STRENGTHS)))]
        names = {"study_id": study, "subject_id": subject, "split": splits[subject], "acquired": _acquired(number)}
        painted = {"findings": findings, "hidden": hidden, "unreported": unreported, "misread": misread}
        files = {"layout": _layout(rng), "images": tuple(images), "report": mute.get(number, "")}
        plans.append(StudyPlan(**names, **painted, strength=strength, **files))
    return sorted(plans, key=lambda plan: plan.study_id)
