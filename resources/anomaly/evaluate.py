"""How well an anomaly engine finds lesions and how much its picture looks like a lung: every figure of the card."""

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
MIN_REST = 0.2  # share of the lungs that must lie outside the lesion for the two to be compared
LOW, HIGH = grey_level(0.01), grey_level(0.10)  # tau_ano of edema and of the other lesions (Table 7)
LIT = 0.02  # share of healthy lungs at HIGH from which a film counts as lit up
BLACK = 0.005  # share of the region clipped to black from which a film counts
STEP, MOST = 20, 0.95  # grey levels of a step at the outline, and the quantile of the outline that is looked at
SQUARE = np.ones((3, 3), np.uint8)


class Edit(NamedTuple):
    """What an engine made of a film: edited frame and anomaly map, uint8 (512, 512)."""

    edited: np.ndarray
    anomaly: np.ndarray


class Scores(NamedTuple):
    """One value for each of some films, and their patients."""

    values: np.ndarray
    patients: list[str]


def comparable(films: list[Film]) -> list[Film]:
    """Return the films that have a lesion in the lungs and at least ``MIN_REST`` of them without."""
    return [
        film
        for film in films
        if (film.lesion & film.lungs).any() and (film.lungs & ~film.lesion).sum() >= MIN_REST * film.lungs.sum()
    ]


def aurocs(films: list[Film], map_of: Map) -> np.ndarray:
    """Return the AUROC of every comparable film, lesion against the rest of the lungs."""
    kept = [(map_of(film), film) for film in comparable(films)]
    return np.array(
        [auroc(values[film.lesion & film.lungs], values[film.lungs & ~film.lesion]) for values, film in kept]
    )


def shares(films: list[Film], map_of: Map, where: Callable[[Film], np.ndarray], at: int = HIGH) -> Scores:
    """Return the share of pixels at or above a threshold in a region, of the films where it is not empty."""
    kept = [(film, region) for film in films if (region := where(film)).any()]
    return Scores(
        np.array([(map_of(film)[region] >= at).mean() for film, region in kept]), [film.patient for film, _ in kept]
    )


def dices(films: list[Film], map_of: Map, at: int = HIGH) -> np.ndarray:
    """Return the Dice of {map >= at} and the lesion."""
    return np.array([masks.dice(*masks.overlap(map_of(film) >= at, film.lesion)) for film in films])


def clipped(film: Film, edit: Edit) -> float:
    """Return the share of the region that the edit alone made black."""
    return float(((edit.edited == 0) & (film.image > 0))[edit_region(film.organs)].mean())


def outline_step(film: Film, edit: Edit) -> float:
    """Return the step in grey levels that the edit makes along the region's outline: a high quantile of it."""
    region = edit_region(film.organs)
    outline = region & (cv2.erode(region.astype(np.uint8), SQUARE, borderValue=0) == 0)
    return float(np.quantile(np.abs(film.image[outline].astype(int) - edit.edited[outline]), MOST))


def interval(values: np.ndarray, patients: list[str], seed: int = 0) -> list[float]:
    """Return the 95 % bootstrap interval of the mean over films, drawn by patient."""
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
    """Return the scores of films with a marked lesion."""

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
    """Return the scores of films without a finding."""
    lit = shares(films, lambda film: edits[film.name].anomaly, lambda film: film.lungs)
    some = shares(films, lambda film: edits[film.name].anomaly, lambda film: film.lungs, LOW)
    return {
        "lungs_at_3": _told(*some),
        "lungs_at_26": _told(*lit),
        "films_lit_up": _told(lit.values > LIT, lit.patients),
    }


def grounded(films: list[Film], edits: dict[str, Edit]) -> dict:
    """Return the scores of affirmed findings: how many get a mask, and its Dice beside that of the whole lung."""
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
    """Return the edit of every film by its name, and how many films a second took on one core."""
    begun = time.process_time()
    made = {film.name: Edit(*compose(film.image, edit(film), edit_region(film.organs))) for film in films}
    return made, len(films) / (time.process_time() - begun)


def table(films: dict[str, list[Film]], edits: dict[str, Edit]) -> dict:
    """Return every score of the card of {boxed, masked, healthy}: {set: {name: {films, value, interval}}}."""
    both = films["boxed"] + films["masked"]
    lungs = [film for film in both if all(film.organs[lung].any() for lung in LUNGS)]
    return {
        "boxed": marked(films["boxed"], edits),
        "masked": marked(films["masked"], edits),
        "healthy": unmarked(films["healthy"], edits),
        "findings": grounded(lungs, edits),
    }
