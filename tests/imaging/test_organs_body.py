"""Organs lie in the picture and in the body: constructed frames, a cut phantom, and real films cut at the apices."""

import json
from dataclasses import replace

import cv2
import numpy as np
import polars as pl
import pytest

from cxr.base.vocabulary import CARDIOMEDIASTINUM, LUNGS
from cxr.geometry.affine import fit_affine, to_frame
from cxr.imaging.organs.engine import load_engine
from cxr.imaging.organs.lite import body_mask, clip_masks
from cxr.imaging.organs.settings import LiteSettings
from cxr.imaging.phantom.chest import draw_chest
from cxr.metrics.masks import dice, overlap
from cxr.nets.map_net import MapNet
from cxr.workflow.code_digest import RESOURCES
from organs_runs import OPTIONS

CUT = ("covid-19-pneumonia-bilateral.jpg", "covid-19-pneumonia-35-1.jpg", "covid-19-pneumonia-35-2.jpg")
"""Films whose upper edge lies close above the apices, so that the net draws beyond it."""
WHOLE = (0.0, 0.0, 512.0, 512.0)


def test_the_body_is_what_is_not_black_and_joined_to_the_edge():
    image = np.full((512, 512), 140, np.uint8)
    image[:60] = 2  # a black bar above the film
    image[:, :30] = 3  # air beside the body
    image[200:300, 200:260] = 0  # black within the body: a lung of a hard film
    image[:40, 400:480] = 255  # a marker in the bar
    where = body_mask(image, WHOLE)
    expected = np.ones((512, 512), bool)
    expected[:60] = expected[:, :30] = False
    wrong = where != expected
    wrong[:48, 390:490] = False  # the marker belongs to neither
    assert wrong.sum() <= 4 * 1024  # the blur moves an edge by a pixel or two
    assert where[250, 230]
    assert not where[30, 200]
    assert not where[300, 15]


def test_nothing_lies_outside_the_picture():
    where = body_mask(np.full((512, 512), 140, np.uint8), (100.4, 0.0, 411.6, 512.0))
    assert np.flatnonzero(where.any(axis=0))[[0, -1]].tolist() == [100, 411]
    assert where[:, 100:412].all()
    black = body_mask(np.zeros((512, 512), np.uint8), (0.0, 50.0, 512.0, 462.0))
    assert black.sum() == 412 * 512  # a picture of one value has no black


def test_a_mask_is_mended_to_one_region_inside():
    mask = np.zeros((1, 64, 64), bool)
    mask[0, 4:40, 10:30] = True  # from above the edge at 10 downwards
    mask[0, 20:24, 30:60] = True  # a tongue that ends in a part of its own, cut off at column 50
    where = np.zeros((64, 64), bool)
    where[10:, :50] = True
    where[:, 40:44] = False
    found = clip_masks(mask, where)
    expected = np.zeros((1, 64, 64), bool)
    expected[0, 10:40, 10:30] = True
    expected[0, 20:24, 30:40] = True
    np.testing.assert_array_equal(found, expected)
    assert not clip_masks(mask, np.zeros((64, 64), bool)).any()


def lungs_of(masks: np.ndarray, labels: tuple[str, ...]) -> np.ndarray:
    return np.logical_or.reduce([masks[labels.index(name)] for name in LUNGS])


def test_a_phantom_cut_above_the_apices_has_no_lung_beyond_the_film():
    chest = draw_chest(np.random.default_rng([31, 4]), (512, 512))
    top = int(np.flatnonzero((chest.masks["right lung"] | chest.masks["left lung"]).any(axis=1))[0]) + 40
    picture = np.round(chest.image[top : top + 360] * 255).astype(np.uint8)
    affine = fit_affine(picture.shape, 512, "pad")
    image, engine = to_frame(picture, affine, 512), load_engine("lite", OPTIONS)
    shown = to_frame(np.ones_like(picture), affine, 512, nearest=True) > 0
    raw = lungs_of(MapNet(RESOURCES / "organs" / "lite.onnx").masks(image), engine.labels)
    found = lungs_of(engine.segment(image, "i", affine, picture.shape), engine.labels)
    assert (raw & ~shown).sum() > 20
    assert not (found & ~shown).any()
    assert (found != (raw & shown)).sum() <= 0.002 * raw.sum()


def test_real_films_cut_at_the_apices(shared):
    engine, net = load_engine("lite", OPTIONS), MapNet(RESOURCES / "organs" / "lite.onnx")
    for name in CUT:
        folder = shared / "data" / ("covid" if name == CUT[0] else "covid_more")
        picture = cv2.imread(str(folder / "images" / name), cv2.IMREAD_GRAYSCALE)
        affine = fit_affine(picture.shape, 512, "pad")
        image = to_frame(picture, affine, 512)
        shown = to_frame(np.ones_like(picture), affine, 512, nearest=True) > 0
        raw = lungs_of(net.masks(image), engine.labels)
        found = lungs_of(engine.segment(image, name, affine, picture.shape), engine.labels)
        assert (raw & ~shown).sum() > 0.001 * raw.sum(), name
        assert not (found & ~cv2.dilate(shown.astype(np.uint8), np.ones((3, 3))).astype(bool)).any(), name
        assert (found & shown).sum() >= 0.98 * (raw & shown).sum(), name


def test_the_lung_behind_the_heart_is_a_convention(shared):
    """With it the masks are like the radiologists', without it like the automatic ones of visible lungs."""
    settings = [replace(OPTIONS, lite=LiteSettings(behind_heart=behind)) for behind in (True, False)]
    with_it, without = (load_engine("lite", options) for options in settings)
    folder, scores = shared / "data" / "covid", {}
    for row in pl.read_csv(folder / "covid.csv").iter_rows(named=True):
        files = json.loads(row["masks"] or "{}")
        by_people = "cardiomediastinum" in files
        names = ("lung_right", "lung_left") if by_people else tuple(files)
        picture = cv2.imread(str(folder / "images" / row["image"]), cv2.IMREAD_GRAYSCALE)
        affine = fit_affine(picture.shape, 512, "pad")
        drawn = [cv2.imread(str(folder / files[name]), cv2.IMREAD_GRAYSCALE) > 127 for name in names]
        truth = to_frame(np.logical_or.reduce(drawn).astype(np.uint8), affine, 512, nearest=True) > 0
        for engine in (with_it, without):
            masks = engine.segment(to_frame(picture, affine, 512), "i", affine, picture.shape)
            found = lungs_of(masks, engine.labels)
            assert engine is with_it or not (found & masks[engine.labels.index(CARDIOMEDIASTINUM)]).any()
            scores.setdefault((by_people, engine is with_it), []).append(dice(*overlap(found, truth)))
    means = {key: float(np.mean(values)) for key, values in scores.items()}
    assert [len(scores[key]) for key in ((True, True), (False, True))] == [18, 20]
    # the card's table, on films that the net saw
    assert means == pytest.approx(
        {(True, True): 0.954, (True, False): 0.868, (False, True): 0.855, (False, False): 0.929}, abs=0.002
    )
