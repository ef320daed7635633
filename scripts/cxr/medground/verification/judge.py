"""Stage III of the verification, the judge. By rules it measures pixels inside boxes, or on radiographs uses results of
ILS (lesion segmentation), but never the source's masks. With a language model it reads the model's answers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import cv2
import numpy as np

from cxr.geometry.boxes import paired_iou
from cxr.llm.guards import neutralize
from cxr.medground.logic.atoms import NO, YES, atom_family
from cxr.medground.logic.components import Component, find_components
from cxr.medground.logic.decide import Decider
from cxr.medground.logic.facts import find_answer
from cxr.medground.verification.anatomy import Anatomy, JudgeThresholds, measure_boxes
from cxr.medground.verification.claims import Claims

CONTRAST_DOMAINS = ("nuclei", "bacteria", "ultrasound", "dermoscopy")
"""Domains where contrast separates a region from its surroundings; tested on nuclei only."""
THRESHOLDS = JudgeThresholds()
MEASURED = ("size", "shape")  # families of claims that are compared with the blob in a box
SIGN_BY_ATOM = {"appearance:bright": 1, "appearance:dark": -1}
MAX_DETAIL = 200  # longest reason of a model in the table of rejected queries, in characters
Answers = Mapping[str, Mapping[str, Mapping]]  # {confirm or select: {query_id: the line of the model's answer}}


class Judgement(NamedTuple):
    """Judgement of a query. ``verdict``: grounded (passed), rejected, unjudged (the judge abstains) or not_run.
    ``reason``: code of a rejection; ``detail``: more about it. ``observed``: measurements, or answers of a model."""

    verdict: str
    reason: str = ""
    observed: tuple[dict, ...] = ()
    detail: str = ""


def measure_box(grey: np.ndarray, box: Sequence[int], enlarge: float, extent: Sequence[int] | None = None) -> dict:
    """Return the measurements {effect, texture, blob_iou, blob} of a box in ``grey``, by a crop around the box.

    ``effect`` is the difference of the mean grey levels inside and outside the box, divided by the pooled SD.
    ``texture`` is the SD inside divided by the SD outside. ``blob`` is the component of the crop after Otsu's threshold
    whose box has the largest IoU with the box, which is ``blob_iou``. ``enlarge``: margin of the crop as a fraction of
    the box's longer side. ``extent``: the part of ``grey`` without padding."""
    x1, y1, x2, y2 = box
    first_x, first_y, last_x, last_y = extent or (0, 0, *grey.shape[::-1])
    reach = max(3, round(enlarge * max(x2 - x1, y2 - y1)))
    y_min, x_min = max(first_y, y1 - reach), max(first_x, x1 - reach)
    crop = grey[y_min : min(last_y, y2 + reach), x_min : min(last_x, x2 + reach)].astype(np.float64)
    inner = np.zeros(crop.shape, bool)
    inner[y1 - y_min : y2 - y_min, x1 - x_min : x2 - x_min] = True
    # a region rarely fills the corners of its box, so the inscribed ellipse is measured
    yy, xx = np.nonzero(inner)
    cy, cx = (yy.mean(), xx.mean()) if len(yy) else (0, 0)
    ry, rx = max((y2 - y1) / 2, 0.5), max((x2 - x1) / 2, 0.5)
    is_in_ellipse = ((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 <= 1
    inside, outside = crop[yy[is_in_ellipse], xx[is_in_ellipse]], crop[~inner]
    if len(outside) < 8 or len(inside) < 4:
        return {"effect": None, "texture": None, "blob_iou": 0.0, "blob": None}
    spread = math.sqrt((inside.var() + outside.var()) / 2)
    effect = float((inside.mean() - outside.mean()) / spread) if spread > 0 else 0.0
    overlap, blob = _find_blob(crop, effect > 0, (x1 - x_min, y1 - y_min, x2 - x_min, y2 - y_min))
    if blob is not None:
        a1, b1, a2, b2 = blob.box
        blob = replace(blob, box=(a1 + x_min, b1 + y_min, a2 + x_min, b2 + y_min))
    texture = round(float(inside.std() / outside.std()), 3) if outside.std() > 0 else None
    return {"effect": round(effect, 3), "texture": texture, "blob_iou": round(overlap, 3), "blob": blob}


def _find_blob(crop: np.ndarray, bright: bool, box: tuple[int, int, int, int]) -> tuple[float, Component | None]:
    """Find the component of a crop after Otsu's threshold whose box has the largest IoU with ``box``. Return (IoU,
    component). ``bright``: whether components are brighter than their surroundings, not darker."""
    grey = cv2.GaussianBlur(np.clip(crop, 0, 255).astype(np.uint8), (3, 3), 0)
    mode = cv2.THRESH_BINARY if bright else cv2.THRESH_BINARY_INV
    _, mask = cv2.threshold(grey, 0, 1, mode + cv2.THRESH_OTSU)
    components = find_components(mask > 0)
    ious = paired_iou(np.array([component.box for component in components]).reshape(-1, 4), np.array(box)).tolist()
    best = max(ious, default=0.0)
    return best, components[ious.index(best)] if best else None


class ImageJudge:
    """Measurements of one image by the judge. ``grey``: uint8 (S, S). ``boxes``: boxes of all regions, (N, 4), px.
    ``decider``: logic of the image. ``film``: anatomy of a radiograph. ``extent``: part of ``grey`` without padding."""

    def __init__(
        self, grey: np.ndarray, boxes: Sequence[Sequence[int]], decider: Decider,
        thresholds: JudgeThresholds = THRESHOLDS, film: Anatomy | None = None, extent: Sequence[int] | None = None,
    ):  # fmt: skip
        self.grey, self.boxes, self.decider, self.thresholds = grey, boxes, decider, thresholds
        self.film, self.extent = film, extent
        self._measurements: dict[int, dict] = {}

    def measurement(self, region: int) -> dict:
        """Return :func:`measure_box` for a region. If ``blob_iou`` is below its threshold, ``blob`` becomes None."""
        if region not in self._measurements:
            measurement = measure_box(self.grey, self.boxes[region], self.thresholds.enlarge, self.extent)
            blob_fits = measurement["blob_iou"] >= self.thresholds.blob_iou
            self._measurements[region] = measurement | {"blob": measurement["blob"] if blob_fits else None}
        return self._measurements[region]

    def observed(self, region: int) -> dict:
        """Return the measurements of a region as values that JSON can store, with those of the blob, if any."""
        observation = dict(self.measurement(region))
        if blob := observation.pop("blob"):
            x, y = (round(value / self.grey.shape[0], 3) for value in blob.centroid)
            observation |= {"px": blob.area, "x": x, "y": y}
            observation |= {"elongation": round(blob.elongation, 3), "solidity": round(blob.solidity, 3)}
        return observation

    @cached_property
    def remeasured(self) -> Decider:
        """The image's logic, but with the judge's measurements in place of those of masks. Size and shape are unclear
        for regions that may not be answers, and for boxes in which :func:`measure_box` found no blob."""
        scene, side, slack = self.decider.scene, self.grey.shape[0], self.thresholds.slack
        measures = ("area", "elongation", "solidity", "contrast", "texture")
        values = {name: np.full(len(scene), np.nan) for name in measures}
        centres = np.array([[(x1 + x2) / 2, (y1 + y2) / 2] for x1, y1, x2, y2 in self.boxes], np.float64).reshape(-1, 2)
        for region in np.flatnonzero(scene.candidate).tolist():
            measurement = self.measurement(region)
            measured = {"contrast": measurement["effect"], "texture": measurement["texture"]}
            if blob := measurement["blob"]:
                centres[region] = blob.centroid
                measured |= {"area": blob.area, "elongation": blob.elongation, "solidity": blob.solidity}
            for name, value in measured.items():
                values[name][region] = np.nan if value is None else value
        of_picture = scene.area_ratio[0] / scene.area[0] if len(scene) else 1.0
        values |= {"area_ratio": values["area"] * of_picture, "cx": centres[:, 0] / side, "cy": centres[:, 1] / side}
        numbers, names = self.decider.numbers, ("size_margin", "shape_margin", "position_margin")
        margins = {name: getattr(numbers, name) * slack for name in names}
        return Decider(replace(scene, **values), replace(numbers, **margins))


def judge_query(image_judge: ImageJudge, regions: Sequence[int], claims: Claims) -> Judgement:
    """Return the judgement of a query by rules.

    A query is rejected if nothing stands out in one of its boxes, if a measurement contradicts a claim on appearance,
    size or shape, or if other regions fit the claims as well. On radiographs, ILS results decide instead. Queries of a
    domain without contrast are unjudged."""
    thresholds = image_judge.thresholds
    if image_judge.film is not None:
        return _judge_anatomy(image_judge, image_judge.film, regions, claims)
    if image_judge.decider.scene.domain not in CONTRAST_DOMAINS:
        return Judgement("unjudged")
    claimed_signs = [sign for atom, sign in SIGN_BY_ATOM.items() if atom in claims.atoms]
    observed = tuple(image_judge.observed(region) for region in regions)
    for observation in observed:
        effect, overlap = observation["effect"], observation["blob_iou"]
        if effect is None or (abs(effect) < thresholds.contrast and overlap < thresholds.blob_iou):
            return Judgement("rejected", "not_grounded", observed)
        if any(-sign * effect >= thresholds.contrast for sign in claimed_signs):
            return Judgement("rejected", "not_grounded", observed, "appearance")
    for atom in claims.atoms:
        values = image_judge.remeasured.atoms.get(atom) if atom_family(atom) in MEASURED else None
        if values is not None and any(values[region] == NO for region in regions):
            return Judgement("rejected", "not_grounded", observed, atom_family(atom))
    if num_others := _count_other_fits(image_judge.remeasured, regions, claims):
        return Judgement("rejected", "ambiguous_seen", observed, f"{num_others} others fit")
    return Judgement("grounded", "", observed)


def _judge_anatomy(image_judge: ImageJudge, film: Anatomy, regions: Sequence[int], claims: Claims) -> Judgement:
    details = regions, claims, image_judge.thresholds
    verdicts, observed = measure_boxes(film, image_judge.decider, image_judge.boxes, *details)
    if NO in verdicts.values():
        return Judgement("rejected", "not_grounded", observed, next(name for name in verdicts if verdicts[name] == NO))
    return Judgement("grounded" if set(verdicts.values()) == {YES} else "unjudged", "", observed)


def _count_other_fits(decider: Decider, regions: Sequence[int], claims: Claims) -> int:
    """Return the number of candidates outside the answer ``regions`` that fit the claims by the judge's measurements.
    The number is 0 if some words were not understood, or if the measurements leave the answer uncertain."""
    query, target = claims.query, set(regions)
    if claims.unread or claims.both or not query.atoms or not decider.supports(query):
        return 0
    if query.ordinal or query.reference:
        answer = decider.answer(query if query.ordinal else replace(query, number=0))
        selected = set(answer.selected) if answer.decidable else target
        return int(selected != target) if query.ordinal else len(selected - target)
    return len(set(np.flatnonzero(decider.conjunction(query.atoms) == YES).tolist()) - target)


STAINS = np.array([[0.650, 0.704, 0.286], [0.072, 0.990, 0.105], [0.268, 0.570, 0.776]])
"""Optical densities (red, green, blue) of hematoxylin, eosin and DAB (Ruifrok and Johnston 2001)."""
DENSEST = 99.9  # percentile of the density that becomes 0, the darkest value


def measured_plane(picture: np.ndarray, domain: str, extent: Sequence[int]) -> np.ndarray:
    """Return the grey image, uint8 (H, W), in which the judge measures. This is the luminance, or, for nuclei in
    colour, the amount of the stain hematoxylin, where dense stain is dark."""
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    coloured = bool((picture != picture[..., :1]).any())
    if domain != "nuclei" or not coloured:
        return grey
    density = -np.log((picture.reshape(-1, 3).astype(np.float64) + 1) / 256)
    unmixed = np.linalg.inv(STAINS / np.linalg.norm(STAINS, axis=1, keepdims=True))
    hematoxylin = (density @ unmixed[:, 0]).reshape(grey.shape)
    x1, y1, x2, y2 = extent
    most = np.percentile(hematoxylin[y1:y2, x1:x2], DENSEST)
    return np.uint8(np.rint(255 - 255 * np.clip(hematoxylin / most, 0, 1))) if most > 0 else grey


def judge_from_answers(query_id: str, regions: Sequence[int], answers: Answers) -> Judgement:
    """Return a query's judgement from a language model's ``answers``. ``regions``: the query's answer. Raises UserError
    if a model's answer is missing."""
    observed = []
    for way, line_by_query in sorted(answers.items()):
        line = find_answer(line_by_query, "query", query_id, "verification")
        if line["answer"] is None:
            return Judgement("rejected", "judge_failed", tuple(observed), f"{way}: {line['problem']}")
        observed.append({"asked": way} | (answer := line["answer"]))
        reason, detail = "", ""
        if "targets" not in answer:
            detail = neutralize(answer["reason"])[:MAX_DETAIL]
            reason = "not_grounded" if not answer["grounded"] else "" if answer["unambiguous"] else "ambiguous_seen"
        elif sorted(answer["targets"]) != sorted(region + 1 for region in regions):
            reason, detail = "other_target", f"selected {', '.join(map(str, sorted(answer['targets']))) or 'none'}"
        if reason:
            return Judgement("rejected", reason, tuple(observed), detail)
    return Judgement("grounded", "", tuple(observed))
