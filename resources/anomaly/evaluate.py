"""How well an anomaly map finds lesions: area under the ROC curve inside the lungs, Dice, and shares of pixels."""

from collections.abc import Callable

import numpy as np
from films import Film

from cxr.ils.masks.thresholds import level
from cxr.metrics import masks

Map = Callable[[Film], np.ndarray]
MIN_REST = 0.2  # share of the lungs that must lie outside the lesion for the two to be compared
LOW, HIGH = level(0.01), level(0.10)  # tau_ano of edema and of the other lesions (Table 7)


def auroc(values: np.ndarray, lesion: np.ndarray, rest: np.ndarray) -> float:
    """Return the exact area under the ROC curve of uint8 values, ties counted as one half."""
    positive = np.bincount(values[lesion], minlength=256).astype(np.float64)
    negative = np.bincount(values[rest], minlength=256).astype(np.float64)
    below = np.cumsum(negative) - negative / 2
    return float((positive * below).sum() / (positive.sum() * negative.sum()))


def aurocs(films: list[Film], map_of: Map) -> np.ndarray:
    """Return the AUROC of every film that has a lesion in the lungs and at least ``MIN_REST`` of them without."""
    found = []
    for film in films:
        lesion, rest = film.lesion & film.lungs, film.lungs & ~film.lesion
        if lesion.any() and rest.sum() >= MIN_REST * film.lungs.sum():
            found.append(auroc(map_of(film), lesion, rest))
    return np.array(found)


def shares(films: list[Film], map_of: Map, where: Callable[[Film], np.ndarray]) -> dict[str, float]:
    """Return the mean share of pixels at or above each threshold, over films where the region is not empty."""
    rows = [map_of(film)[region] for film in films if (region := where(film)).any()]
    return {f">={level}": round(float(np.mean([(row >= level).mean() for row in rows])), 3) for level in (LOW, HIGH)}


def dice(films: list[Film], map_of: Map, level: int = HIGH) -> float:
    """Return the mean Dice of {map >= level} and the lesion."""
    return float(np.mean([masks.dice(*masks.overlap(map_of(film) >= level, film.lesion)) for film in films]))


def interval(values: np.ndarray, seed: int = 0) -> list[float]:
    """Return the 95 % bootstrap interval of the mean over films."""
    random = np.random.default_rng(seed)
    means = values[random.integers(0, len(values), (4000, len(values)))].mean(axis=1)
    return [round(float(q), 3) for q in np.quantile(means, (0.025, 0.975))]


def table(sets: dict[str, list[Film]], healthy: dict[str, list[Film]], map_of: Map, template: Map) -> dict:
    """Return every score of the card: {set: {name: value}}."""

    def lesion(film: Film) -> np.ndarray:
        return film.lesion & film.lungs

    def rest(film: Film) -> np.ndarray:
        return film.lungs & ~film.lesion

    result = {}
    for name, films in sets.items():
        values = aurocs(films, map_of)
        result[name] = {
            "films": len(films),
            "compared": len(values),
            "auroc": round(float(values.mean()), 3),
            "auroc_95": interval(values),
            "raw_intensity": round(float(aurocs(films, lambda film: film.image).mean()), 3),
            "healthy_template": round(float(aurocs(films, template).mean()), 3),
            "dice": round(dice(films, map_of), 3),
            "lesion": shares(films, map_of, lesion),
            "rest": shares(films, map_of, rest),
        }
    for name, films in healthy.items():
        result[name] = {"films": len(films), "lungs": shares(films, map_of, rest)}
    return result
