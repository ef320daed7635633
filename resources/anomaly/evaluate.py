"""All scores of the card: how well an anomaly engine finds lesions, and how much its edited image looks like a lung."""

import time
from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np
from films import Film

from cxr.base.vocabulary import LUNGS
from cxr.ils.masks.thresholds import grey_level
from cxr.imaging.anomaly.engine import compose, edit_region
from cxr.metrics import masks
from cxr.metrics.labels import auroc

Map = Callable[[Film], np.ndarray]
MIN_REST = 0.2  # minimum fraction of the lungs outside the lesion, to compare both
LOW, HIGH = grey_level(0.01), grey_level(0.10)  # tau_ano of edema and of the other lesions (Table 7)
LIT = 0.02  # minimum fraction of healthy lungs at HIGH with which an X-ray counts as lit up
BLACK = 0.005  # minimum fraction of the region clipped to black with which an X-ray counts
STEP, MOST = 20, 0.95  # minimum grey levels of a step at the outline, and its quantile along the outline
SQUARE = np.ones((3, 3), np.uint8)


class Edit(NamedTuple):
    """The result of an engine for an X-ray: edited frame and anomaly map, both uint8 (512, 512)."""

    edited: np.ndarray
    anomaly: np.ndarray


class Scores(NamedTuple):
    """A value for each of several X-rays, and the patient of each."""

    values: np.ndarray
    patients: list[str]


def comparable(films: list[Film]) -> list[Film]:
    """Return the X-rays whose lungs contain a lesion, and at least the fraction ``MIN_REST`` of pixels without one."""
    return [
        film
        for film in films
        if (film.lesion & film.lungs).any() and (film.lungs & ~film.lesion).sum() >= MIN_REST * film.lungs.sum()
    ]


def aurocs(films: list[Film], map_of: Map) -> np.ndarray:
    """Return, for each comparable X-ray, the AUROC with which its map separates the lesion from other lung pixels."""
    kept = [(map_of(film), film) for film in comparable(films)]
    return np.array(
        [auroc(values[film.lesion & film.lungs], values[film.lungs & ~film.lesion]) for values, film in kept]
    )


def shares(films: list[Film], map_of: Map, where: Callable[[Film], np.ndarray], at: int = HIGH) -> Scores:
    """Return, for each X-ray, the fraction of pixels >= ``at`` in the region that ``where`` returns. X-rays without
    such a region are left out."""
    kept = [(film, region) for film in films if (region := where(film)).any()]
    return Scores(
        np.array([(map_of(film)[region] >= at).mean() for film, region in kept]), [film.patient for film, _ in kept]
    )


def dices(films: list[Film], map_of: Map, at: int = HIGH) -> np.ndarray:
    """Return the Dice of each X-ray's lesion and the pixels whose map value is at least ``at``."""
    return np.array([masks.dice(*masks.overlap(map_of(film) >= at, film.lesion)) for film in films])


def clipped(film: Film, edit: Edit) -> float:
    """Return the fraction of the edit region that is black after the edit but was not black before."""
    return float(((edit.edited == 0) & (film.image > 0))[edit_region(film.organs)].mean())


def outline_step(film: Film, edit: Edit) -> float:
    """Return the quantile ``MOST`` of the change in grey levels along the outline of the edit region."""
    region = edit_region(film.organs)
    outline = region & (cv2.erode(region.astype(np.uint8), SQUARE, borderValue=0) == 0)
    return float(np.quantile(np.abs(film.image[outline].astype(int) - edit.edited[outline]), MOST))


def interval(values: np.ndarray, patients: list[str], seed: int = 0) -> list[float]:
    """Return the 95 % bootstrap interval of the mean over X-rays. Patients are drawn with all their X-rays."""
    which = np.unique(patients, return_inverse=True)[1]
    total, number = np.bincount(which, values), np.bincount(which)
    draws = np.random.default_rng(seed).integers(0, len(total), (4000, len(total)))
    means = total[draws].sum(axis=1) / number[draws].sum(axis=1)
    return [round(float(q), 3) for q in np.quantile(means, (0.025, 0.975))]


def _told(values: np.ndarray, patients: list[str]) -> dict:
    values = np.asarray(values, np.float64)
    return {"films": len(values), "value": round(float(values.mean()), 3), "interval": interval(values, patients)}


def _patients(films: list[Film]) -> list[str]:
    return [film.patient for film in films]


def marked(films: list[Film], edits: dict[str, Edit]) -> dict:
    """Return the scores of X-rays whose lesions are marked."""

    def map_of(film: Film) -> np.ndarray:
        return edits[film.name].anomaly

    kept = comparable(films)
    edited = [film for film in films if edit_region(film.organs).any()]
    inside = shares(films, map_of, lambda film: film.lesion & film.lungs)
    rest = shares(films, map_of, lambda film: film.lungs & ~film.lesion)
    return {
        "auroc": _told(aurocs(films, map_of), _patients(kept)),
        "auroc_of_raw_intensity": _told(aurocs(films, lambda film: film.image), _patients(kept)),
        "dice_at_26": _told(dices(films, map_of), _patients(films)),
        "lesion_at_26": _told(*inside),
        "rest_at_26": _told(*rest),
        "films_clipped": _told([clipped(film, edits[film.name]) > BLACK for film in edited], _patients(edited)),
        "films_with_a_step": _told(
            [outline_step(film, edits[film.name]) >= STEP for film in edited], _patients(edited)
        ),
    }


def unmarked(films: list[Film], edits: dict[str, Edit]) -> dict:
    """Return the scores of X-rays without a finding."""
    lit = shares(films, lambda film: edits[film.name].anomaly, lambda film: film.lungs)
    some = shares(films, lambda film: edits[film.name].anomaly, lambda film: film.lungs, LOW)
    return {
        "lungs_at_3": _told(*some),
        "lungs_at_26": _told(*lit),
        "films_lit_up": _told(lit.values > LIT, lit.patients),
    }


def grounded(films: list[Film], edits: dict[str, Edit]) -> dict:
    """Return the scores of findings: the fraction that gets a mask, the mask's Dice, and the Dice of the whole lung."""
    from findings import findings

    rows = [(film.patient, found) for film in films for found in findings(film, *edits[film.name])]
    hits = [(patient, found) for patient, found in rows if found.mask is not None]
    people = [patient for patient, _ in hits]

    def dice(mask: np.ndarray, truth: np.ndarray) -> float:
        return masks.dice(*masks.overlap(mask, truth))

    return {
        "findings_with_a_mask": _told([found.mask is not None for _, found in rows], [name for name, _ in rows]),
        "dice_of_found": _told([dice(found.mask, found.truth) for _, found in hits], people),
        "dice_of_whole_lung": _told([dice(found.lung, found.truth) for _, found in hits], people),
    }


def edits_of(films: list[Film], edit: Callable[[Film], np.ndarray]) -> tuple[dict[str, Edit], float]:
    """Return {name of an X-ray: its edit}, and the number of X-rays per second of CPU time."""
    begun = time.process_time()
    made = {film.name: Edit(*compose(film.image, edit(film), edit_region(film.organs))) for film in films}
    return made, len(films) / (time.process_time() - begun)


def table(films: dict[str, list[Film]], edits: dict[str, Edit]) -> dict:
    """Return all scores of the card, {set: {score: {films, value, interval}}}. ``films``: {set: its X-rays}."""
    both = films["boxed"] + films["masked"]
    lungs = [film for film in both if all(film.organs[lung].any() for lung in LUNGS)]
    return {
        "boxed": marked(films["boxed"], edits),
        "masked": marked(films["masked"], edits),
        "healthy": unmarked(films["healthy"], edits),
        "findings": grounded(lungs, edits),
    }
