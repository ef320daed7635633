"""Atelectasis: plates of collapsed lung or a collapsed wedge, and the loss of volume that pulls the diaphragm up."""

import cv2
import numpy as np

from cxr.painting.absorb import absorb, water
from cxr.painting.effusion import below, laterality
from cxr.painting.film import Asked, Film, Painted, Window, ease, step
from cxr.painting.lesions import noise

EDGE = 0.25
"""Share of the densest place from which a pixel belongs to the mask: plates are narrow and dense."""


def plates(window: Window, number: int, thick: float, random: np.random.Generator) -> np.ndarray:
    """Return ``number`` plates across the box, float32 (h, w), 1 on a plate; ``thick``: px.

    Plates lie one above the other, nearly level, slightly bent, and thin out at their ends. They reach from side to
    side, the outer ones to the top and the bottom of the box.
    """
    x1, y1, x2, y2 = window.box
    y, x = np.mgrid[: window.shape[0], : window.shape[1]].astype(np.float32) + 0.5
    found = np.zeros(window.shape, np.float32)
    room = np.linspace(0.08, 0.92, number) if number > 1 else np.array([0.5])
    slope = (
        window.lateral * random.uniform(-0.1, 0.35)
        if number > 1
        else (y2 - y1) / max(1, x2 - x1) * random.choice([-1, 1])
    )
    for index, place in enumerate(room):
        tall = (y2 - y1) - abs(slope) * 0.7 * (x2 - x1) if number > 1 else 0
        centre = (y1 + y2) / 2 + (place - 0.5) * max(tall, 0.3 * (y2 - y1))
        u = (2 * x - x1 - x2) / (x2 - x1)
        bend = random.normal(0, 0.06) * (y2 - y1)
        middle = centre + (slope + random.normal(0, 0.05)) * (x - (x1 + x2) / 2) * 0.9 + bend * (u**2 - 0.5)
        middle += 0.12 * thick * noise((1, window.shape[1]), max(12.0, window.shape[1] / 3), random, 1)
        width = (
            thick * random.uniform(0.6, 1.2) * (1 + 0.35 * noise((1, window.shape[1]), window.shape[1] / 3, random, 1))
        )
        first, last = random.uniform(-1.15, -0.75 if index else -1.0), random.uniform(0.75 if index else 1.0, 1.15)
        ends = step(u - first, 0.35) * step(last - u, 0.35)
        plate = np.exp(-0.5 * np.abs((y - middle) / np.maximum(0.45 * width, 0.7)) ** 2.4) * ends
        found = np.maximum(found, random.uniform(0.7, 1.0) * plate)
    return found.astype(np.float32)


def wedge(window: Window, random: np.random.Generator) -> np.ndarray:
    """Return a collapsed wedge, float32 (h, w): its base on the diaphragm and the heart, its border a straight fissure.

    It falls from the top of the box on the medial side to the bottom on the lateral side.
    """
    u = laterality(window)
    _, y1, _, y2 = window.box
    y = (np.arange(window.shape[0], dtype=np.float32)[:, None] + 0.5 - y1) / max(1, y2 - y1)
    border = np.clip(u, 0, 1) ** random.uniform(0.8, 1.6) * random.uniform(0.85, 1.0)
    border = border + 0.02 * noise((1, window.shape[1]), max(8.0, window.shape[1] / 3), random, 2)
    body = step(y - border - 0.03, 0.16)
    return (body * (0.75 + 0.25 * ease(np.clip(y, 0, 1))) * (1 - 0.35 * u)).astype(np.float32)


def pulled(film: Film, window: Window, shift: float) -> np.ndarray:
    """Return the film's part with the diaphragm pulled up by ``shift`` px in the middle of the box, float32 (h, w)."""
    lower = np.where(window.lung.any(axis=0), window.shape[0] - np.argmax(window.lung[::-1], axis=0), 0).astype(
        np.float32
    )
    y, x = np.mgrid[: window.shape[0], : window.shape[1]].astype(np.float32)
    lower = cv2.GaussianBlur(lower[None], (0, 0), 4.0)[0][None]
    x1, _, x2, y2 = window.wanted
    across = np.clip(1 - np.abs((2 * x - x1 - x2) / (x2 - x1)), 0, 1)
    above = np.clip(1 - (lower - y) / max(6 * shift, 1), 0, 1)
    under = np.clip(1 - (y - lower) / max(min(3 * shift, y2 - 1 - float(lower.max())), 1), 0, 1)
    weight = ease(across) * ease(np.where(y < lower, above, under)) * window.inside
    return cv2.remap(
        window.image, x, (y + shift * weight).astype(np.float32), cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )


def paint(film: Film, asked: Asked, random: np.random.Generator) -> Painted:
    """Paint atelectasis into each place."""
    moved, total = film.image.copy(), np.zeros(film.image.shape, np.float32)
    lesion, drawn = np.zeros(film.image.shape, bool), []
    flat, lost = asked.draw("flat", random), asked.draw("lost", random)
    for place in asked.places:
        window = Window(film, place)
        if window.empty:
            continue
        lung = film.lung(place.side)
        tall = int(np.ptp(np.flatnonzero(lung.any(axis=1)))) + 1
        collapse = asked.says("collapse")
        banded = asked.says("linear", "streaky", "subsegmental", "plate") or (
            not collapse and random.random() < asked.ranges["bands"]
        )
        shift = tall * asked.draw("collapse" if collapse else "loss", random)
        at = window.rows, window.columns
        edge = below(window).any() and window.wanted[3] > window.box[3] + 4
        if edge:
            moved[at] = pulled(film, window, min(shift, 0.12 * window.size[1]))
        number, thick = asked.count("number", random), tall * asked.draw("thick", random)
        _x1, y1, _x2, y2 = window.box
        number = max(1, min(number, int((y2 - y1) / (1.8 * thick))))
        shape = plates(window, number, thick, random) if banded else wedge(window, random)
        delta = asked.draw("delta", random)
        shape *= np.clip(
            1 + asked.ranges["texture"] * noise(window.shape, max(4.0, window.reach / 8), random, 2), 0, None
        )
        # a plate is surrounded by lung that is less full of air
        haze = asked.ranges["haze"] * cv2.GaussianBlur(shape, (0, 0), max(3.0, 1.5 * thick))
        density = delta * np.maximum(shape, haze) * window.fading(0.06 if banded else 0.3)
        total[at] = np.maximum(total[at], density)
        lesion[at] |= (density >= EDGE * max(float(density.max()), 1e-6)) & window.inside
        told = {
            "form": "plates" if banded else "wedge",
            "number": number if banded else 1,
            "thick": thick,
            "delta": delta,
        }
        drawn.append(told | {"pulled": float(shift) if edge else 0.0, "side": place.side})
    new = absorb(moved, np.clip(total, 0, 0.85), asked.curve, water(film.image, film.heart), flat, lost)
    return Painted(new, lesion & (total > 0), {"parts": drawn, "flat": flat, "lost": lost})
