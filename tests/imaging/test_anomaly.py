"""The counterfactual and the anomaly map: exact composition, ledger, threads, and the detection of lesions."""

import csv
import importlib.util
import sys
from pathlib import Path

import cv2
import h5py
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cxr.base import edited_images
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_table
from cxr.base.vocabulary import HEART, LUNGS
from cxr.imaging.anomaly import engine, lite, map_anomalies
from cxr.imaging.anomaly.engine import BadMap, compose, edit_region
from cxr.imaging.anomaly.lite import BLACK, ROOM, fade_weights, healthy_parts, limit_excess, low_pass, remove_lesions
from cxr.imaging.anomaly.settings import AnomalySettings
from cxr.workflow.code_digest import RESOURCES
from simple_chests import ellipse, simple_chest, write_inputs

OPTIONS = AnomalySettings(engine="lite")


@pytest.fixture(scope="module")
def scoring():
    """The modules of resources/anomaly that compute the card's scores."""
    folder = RESOURCES / "anomaly"
    loaded = []
    for name in ("films", "evaluate"):
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        assert name not in sys.modules
        sys.modules[name] = module
        spec.loader.exec_module(module)
        loaded.append(module)
    yield tuple(loaded)
    for module in loaded:
        del sys.modules[module.__name__]


def run(folder: Path, inputs: dict[str, Path], threads: int = 1, options=OPTIONS) -> tuple[Path, pl.DataFrame]:
    folder.mkdir(parents=True, exist_ok=True)
    output, excluded = folder / "00.h5", folder / "00.excluded.parquet"
    map_anomalies.run_shard(
        **inputs, output=output, excluded=excluded, options=options, attrs={"stage": "anomaly"}, threads=threads
    )
    return output, read_table(excluded)


pictures = hnp.arrays(np.uint8, (9, 7))
proposals = hnp.arrays(
    np.float32, (9, 7), elements=st.floats(-400, 700, width=32, allow_nan=False, allow_infinity=False)
)


@given(pictures, proposals, hnp.arrays(bool, (9, 7)))
@settings(max_examples=300, deadline=None)
def test_composition_is_exact(image, proposal, region):
    edited, anomaly = compose(image, proposal, region)
    assert edited.dtype == anomaly.dtype == np.uint8
    for at in np.ndindex(image.shape):
        expected = min(max(round(float(proposal[at])), 0), 255) if region[at] else int(image[at])
        assert int(edited[at]) == expected
        assert int(anomaly[at]) == max(int(image[at]) - expected, 0)


@given(pictures)
@settings(max_examples=50, deadline=None)
def test_nothing_outside_the_region_and_nothing_negative(image):
    nowhere, everywhere = np.zeros(image.shape, bool), np.ones(image.shape, bool)
    edited, anomaly = compose(image, np.zeros(image.shape), nowhere)
    assert (edited == image).all()
    assert not anomaly.any()
    assert not compose(image, np.full(image.shape, 255.0), everywhere)[1].any()
    assert (compose(image, np.zeros(image.shape), everywhere)[1] == image).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bad_values_are_refused_even_outside_the_region(value):
    proposal = np.zeros((4, 4))
    proposal[1, 2] = value
    with pytest.raises(BadMap, match="1 values of the engine's output are not finite"):
        compose(np.zeros((4, 4), np.uint8), proposal, np.zeros((4, 4), bool))
    with pytest.raises(BadMap, match="shape"):
        compose(np.zeros((4, 4), np.uint8), np.zeros((4, 5)), np.zeros((4, 4), bool))


def test_region_is_lungs_and_heart():
    names = (*LUNGS, HEART, "cardiomediastinum")
    masks = {name: np.arange(5) == index for index, name in enumerate(names)}
    assert edit_region(masks).tolist() == [True, True, True, False, False]


def test_unknown_engine_names_the_engines():
    with pytest.raises(UserError, match=r"anomaly\.engine is 'radiant'.*lite"):
        engine.load_engine("radiant", AnomalySettings(engine="radiant"))
    assert isinstance(engine.load_engine("lite", OPTIONS), lite.LiteEditor)


class Scripted:
    """An engine whose action is chosen by the image's first pixel."""

    def edit(self, image, organs):
        if image[0, 0] == 1:
            return np.full(image.shape, np.nan)
        if image[0, 0] == 2:
            raise RuntimeError("patient John")
        if image[0, 0] == 3:
            image[:] = 0  # an engine may scribble on what it was given
        return np.full(image.shape, 50, np.uint8)


def test_ledger_keeps_every_image(tmp_path, monkeypatch):
    chests = {f"i{code}": simple_chest(code) for code in range(5)}
    for code, (image, _) in enumerate(chests.values()):
        image[0, 0] = code
    monkeypatch.setattr(map_anomalies, "load_engine", lambda name, options, setup: Scripted())
    inputs = write_inputs(tmp_path, chests, missing=("i4",))
    output, excluded = run(tmp_path / "out", inputs)
    assert excluded["image_id"].to_list() == ["i1", "i2"]
    assert excluded["reason"].to_list() == ["bad_map", "engine_failure"]
    stopped = (
        "the engine stopped with RuntimeError in cxr.imaging.anomaly.map_anomalies.work; the first such error is in the"
    )
    stopped += " job's log"
    assert excluded["detail"].to_list() == ["262144 values of the engine's output are not finite", stopped]
    with Shard(output) as shard, Shard(inputs["frames"]) as frames:
        assert shard.ids == ["i0", "i3"]
        for name in shard.ids:
            image, masks = chests[name]
            region = edit_region(masks)
            edited, anomaly = edited_images.read_edited_image(shard, frames, name), shard.get("anomaly", name)
            assert (edited == np.where(region, 50, image)).all()
            assert (anomaly == np.maximum(image.astype(int) - edited, 0)).all()


def test_no_images_gives_an_empty_valid_shard(tmp_path):
    output, excluded = run(tmp_path / "out", write_inputs(tmp_path, {"a": simple_chest(0)}, missing=("a",)))
    assert excluded.is_empty()
    with h5py.File(output) as file:
        assert file["brighter"].shape == file["anomaly"].shape == (0, 512, 512)
        assert file["anomaly"].attrs["units"] == b"grey levels"


def test_same_bytes_for_any_number_of_threads_and_any_company(tmp_path):
    chests = {f"i{seed}": simple_chest(seed) for seed in range(5)}
    inputs = write_inputs(tmp_path, chests)
    one, _ = run(tmp_path / "one", inputs, threads=1)
    three, _ = run(tmp_path / "three", inputs, threads=3)
    assert one.read_bytes() == three.read_bytes()
    (tmp_path / "alone").mkdir()
    alone, _ = run(tmp_path / "out", write_inputs(tmp_path / "alone", {"i3": chests["i3"]}))
    with Shard(one) as many, Shard(alone) as single:
        assert many.get("anomaly", "i3").any()
        for field in ("anomaly", "brighter"):
            assert (many.get(field, "i3") == single.get(field, "i3")).all()


@given(image=pictures, edited=pictures)
@settings(max_examples=200, deadline=None)
def test_an_edited_image_is_read_back_to_the_bit(tmp_path_factory, image, edited):
    folder = tmp_path_factory.mktemp("edits")
    map_, back = compose(image, edited, np.ones(image.shape, bool))[1], edited_images.brightening(image, edited)
    assert not (map_.astype(bool) & back.astype(bool)).any()
    with ShardWriter(folder / "frames.h5") as frames, ShardWriter(folder / "anomaly.h5") as anomaly:
        frames.append("a", image=image)
        anomaly.append("a", anomaly=map_, brighter=back)
    with Shard(folder / "frames.h5") as frames, Shard(folder / "anomaly.h5") as anomaly:
        read_back = edited_images.read_edited_image(anomaly, frames, "a")
        assert read_back.dtype == np.uint8
        assert read_back.tobytes() == edited.tobytes()


def test_edits_only_lungs_and_only_darkens():
    image, masks = simple_chest(1)
    image[ellipse(image.shape, (160, 330), (45, 45))] = 170
    editor = lite.load(OPTIONS)
    edited = editor.edit(image, masks)
    assert edited.shape == image.shape
    assert edited.dtype == np.float32
    assert (edited <= image).all()
    assert (edited == image)[~edit_region(masks)].all()
    taken = image - edited
    assert taken[ellipse(image.shape, (160, 330), (30, 30))].mean() > 3 * taken[masks["left lung"]].mean()
    nothing = {label: np.zeros_like(mask) for label, mask in masks.items()}
    assert (editor.edit(image, nothing) == image).all()
    for found in editor.predict_lesions(image, nothing):
        assert found.shape == image.shape
        assert not found.any()


def veiled() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two ribbed lungs of one kind, the right one under a veil that halves the distance to white below row 60."""
    y, x = np.mgrid[:120, :160].astype(np.float32)
    clear = 90 + 20 * np.sin(2 * np.pi * y / 12)
    lungs = ellipse(clear.shape, (40, 60), (28, 50)) | ellipse(clear.shape, (120, 60), (28, 50))
    veil = (x < 80) & (y > 60)
    image = np.where(lungs, np.where(veil, 255 - (255 - clear) / 2, clear), 220)
    return np.rint(image).astype(np.uint8), np.where(lungs, clear, 220), lungs, lungs & veil


def test_a_veil_is_taken_off_and_the_ribs_under_it_come_back():
    image, clear, lungs, veil = veiled()
    edited = remove_lesions(image, lungs, lungs, veil.astype(np.float32), veil * np.float32(200))
    deep = veil & (fade_weights(lungs) == 1) & (np.arange(120)[:, None] > 75)
    assert deep.sum() > 600
    assert np.ptp(image[deep]) < 24
    assert np.ptp(edited[deep]) > 30
    assert abs(edited[deep].mean() - clear[deep].mean()) < abs(image[deep].mean() - clear[deep].mean()) / 3
    assert (edited[~veil] == image[~veil]).all()


def test_a_bright_place_comes_down_to_the_usual_healthy_brightness_and_no_step_is_left_at_the_outline():
    image, _, lungs, veil = veiled()
    everything = np.full(image.shape, 1e4, np.float32)
    edited = remove_lesions(image, lungs, lungs, veil.astype(np.float32), everything)
    usual = np.median(low_pass(image.astype(np.float32), lungs)[lungs & ~veil])
    deep = veil & (fade_weights(lungs) == 1) & (np.arange(120)[:, None] > 75)
    assert edited[deep].mean() == pytest.approx(image[deep].mean() - max(image[deep].mean() - usual, ROOM), abs=3)
    outline = lungs & ~cv2.erode(lungs.astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool)
    assert np.abs(edited - image)[outline].max() < 5
    assert np.abs(edited - image)[veil].max() > 40


def test_a_lesion_no_brighter_than_the_healthy_parts_has_a_map_too():
    image = np.full((120, 160), 100, np.uint8)
    lungs = ellipse(image.shape, (80, 60), (60, 50))
    suspect = lungs & (np.arange(160) > 80)
    edited = remove_lesions(image, lungs, lungs, suspect.astype(np.float32), suspect * np.float32(40))
    inside = suspect & (fade_weights(lungs) == 1)
    assert np.allclose(
        image[inside] - edited[inside], limit_excess(np.float32(40), np.float32(96)), atol=1e-3
    )  # 100 - BLACK
    assert (image - edited)[inside].min() > 26
    assert (edited == image)[~suspect].all()


@given(st.lists(st.floats(0, 600, width=32), min_size=2), st.floats(1, 300, width=32))
@settings(max_examples=100, deadline=None)
def test_what_comes_off_keeps_its_order_and_stays_below_both_limits(excess, room):
    excess = np.sort(np.float32(excess))
    found = limit_excess(excess, np.float32(room))
    assert (np.diff(found) >= -1e-4).all()
    assert (found <= np.minimum(excess, room) * (1 + 1e-5)).all()
    assert (found >= np.minimum(excess, room) / 2 * (1 - 1e-5)).all()


def test_an_edit_makes_nothing_black():
    image, _, lungs, veil = veiled()
    image = np.where(lungs & ~veil, 0, image).astype(np.uint8)
    edited = remove_lesions(image, lungs, lungs, veil.astype(np.float32), np.full(image.shape, 1e4, np.float32))
    assert edited[veil].min() == BLACK
    assert (edited[lungs & ~veil] == 0).all()


def test_both_lungs_are_treated_alike():
    image, _, lungs, veil = veiled()
    excess = veil * np.float32(60)
    edited = remove_lesions(image, lungs, lungs, veil.astype(np.float32), excess)
    mirrored = remove_lesions(image[:, ::-1], lungs[:, ::-1], lungs[:, ::-1], excess[:, ::-1] / 60, excess[:, ::-1])
    assert np.abs(mirrored[:, ::-1] - edited).max() < 0.01


def test_without_a_healthy_part_the_least_suspicious_tenth_counts_as_healthy():
    lungs = np.ones((10, 10), bool)
    suspicion = np.linspace(0.5, 1, 100, dtype=np.float32).reshape(10, 10)
    assert np.flatnonzero(healthy_parts(lungs, suspicion)).tolist() == list(range(10))
    assert np.count_nonzero(healthy_parts(lungs, suspicion - 0.4)) == 40


def test_the_low_pass_looks_at_the_region_alone():
    image = np.full((64, 64), 200, np.float32)
    region = np.zeros((64, 64), bool)
    region[16:48, 16:48] = True
    image[region] = 60
    assert low_pass(image, region)[region] == pytest.approx(60, abs=1e-3)


@given(st.integers(0, 120), st.integers(0, 120), st.integers(40, 90), st.integers(40, 150))
@settings(max_examples=50, deadline=None)
def test_window_holds_the_lungs_and_ignores_strays(x, y, width, height):
    lungs = np.zeros((300, 300), bool)
    lungs[y : y + height, x : x + width] = True
    clean = lite.fit_window(lungs, 64, 0.0)
    assert np.allclose(clean[:, 2], (x, y), atol=2)
    assert np.allclose(clean[:, :2].diagonal() * 64, (width, height), atol=4)
    lungs[290:293, 290:293] = True
    assert np.allclose(lite.fit_window(lungs, 64, 0.0), clean, atol=1.5)


def test_lung_size_and_place_do_not_change_what_is_seen():
    image, masks = simple_chest(2)
    smooth = np.where(masks["right lung"] | masks["left lung"], 80, 190).astype(np.uint8)
    views = []
    for shift in (0, 40):
        moved = np.roll(smooth, shift, axis=(0, 1))
        lungs = np.stack([np.roll(masks[label], shift, axis=(0, 1)) for label in LUNGS])
        views.append(lite.make_lung_view(*lite.crop_to_window(moved, lungs, lite.fit_window(lungs.any(axis=0)))))
    assert np.abs(views[0].image - views[1].image).max() < 0.02
    assert views[0].span == views[1].span
    assert image.shape == (512, 512)


def test_what_lies_outside_the_lungs_does_not_change_how_they_are_seen():
    image, masks = simple_chest(4)
    lungs = np.stack([masks[label] for label in LUNGS])
    affine = lite.fit_window(lungs.any(axis=0))
    dark = image.copy()
    dark[:, :20] = 0
    dark[:20] = 0
    first, second = (lite.make_lung_view(*lite.crop_to_window(one, lungs, affine)) for one in (image, dark))
    assert first.span == second.span
    assert (lite.lung_hull(lungs) >= lungs.any(axis=0)).all()
    assert lite.lung_hull(np.zeros((2, 4, 4), bool)).all()


def test_a_film_that_shows_little_is_damped_below_the_threshold_and_a_loud_one_is_not():
    lungs = np.zeros((2, 128, 128), np.float32)
    lungs[0, :, :50] = lungs[1, :, 78:] = 1
    excess = np.zeros((64, 64), np.float32)
    excess[:, 27:37] = 200  # between the lungs: does not count
    assert lite.damping_factor(excess, lungs) == lite.DAMPED
    excess[:4, :25] = 60  # 100 of 3200 places; the surest 192 are on average at 31.25
    assert lite.damping_factor(excess, lungs) == lite.DAMPED
    excess[:10, :25] = lite.QUIET
    assert lite.damping_factor(excess, lungs) == lite.DAMPED
    excess[:10, :25] = 50
    assert lite.damping_factor(excess, lungs) == pytest.approx((1 + lite.DAMPED) / 2)
    excess[:10, :25] = lite.LOUD
    assert lite.damping_factor(excess, lungs) == 1
    assert lite.damping_factor(excess, np.zeros_like(lungs)) == lite.DAMPED
    assert limit_excess(np.float32(lite.DAMPED * lite.QUIET), np.float32(ROOM)) < 26


def test_auroc_agrees_with_counting_pairs(scoring):
    _, evaluate = scoring
    random = np.random.default_rng(0)
    for _ in range(20):
        values = random.integers(0, 6, 60).astype(np.uint8)
        lesion = random.random(60) < 0.4
        pairs = [(a > b) + 0.5 * (a == b) for a in values[lesion].tolist() for b in values[~lesion].tolist()]
        assert evaluate.auroc(values[lesion], values[~lesion]) == pytest.approx(np.mean(pairs))


def map_of(film) -> np.ndarray:
    return compose(film.image, lite.load(OPTIONS).edit(film.image, film.organs), edit_region(film.organs))[1]


def test_finds_painted_lesions_on_synthetic_chests(scoring):
    films, evaluate = scoring
    lesions = ("opacity", "consolidation", "pneumonia", "edema", "effusion")
    found = [films.painted(700_001 + 11 * i, lesions[i % 5]) for i in range(10)]
    assert evaluate.aurocs(found, map_of).mean() >= 0.80


def test_finds_what_radiologists_boxed(scoring, shared):
    """The films were used in training: the net must fit them. train.py --evaluate scores unseen ones."""
    films, evaluate = scoring
    boxed = films.boxed(24)
    values = evaluate.aurocs(boxed, map_of)
    raw = evaluate.aurocs(boxed, lambda film: film.image)
    assert len(values) >= 20
    assert values.mean() >= 0.84
    assert values.mean() >= raw.mean() + 0.15


def test_no_patient_crosses_a_fold_and_the_list_follows_the_rule(scoring, shared):
    films, _ = scoring
    folder = RESOURCES / "anomaly"
    with open(folder / "folds.csv", encoding="utf-8", newline="") as file:
        listed = {row["patient"]: int(row["fold"]) for row in csv.DictReader(file)}
    assert listed == films.folds()
    sets = films.chosen()
    assert {name: len(rows) for name, rows in sets.items()} == {
        "boxed": 57,
        "masked": 18,
        "healthy": 206,
        "doubtful": 22,
        "labelled": 334,
    }
    sick = {row["patient"] for row in sets["boxed"]}
    assert not sick & {row["patient"] for name in ("healthy", "doubtful", "labelled") for row in sets[name]}
    for rows in (sets["boxed"], sets["masked"], sets["healthy"]):
        share = [sum(listed[row["patient"]] == fold for row in rows) / len(rows) for fold in range(films.FOLDS)]
        assert min(share) > 0.25


def test_the_interval_is_drawn_by_patient(scoring):
    _, evaluate = scoring
    values = np.array([0.0, 1.0] * 8)
    assert evaluate.interval(values, [str(row) for row in range(16)]) == [0.25, 0.75]
    assert evaluate.interval(values, [str(row // 8) for row in range(16)]) == [0.5, 0.5]


def test_black_holes_and_steps_are_counted_as_documented(scoring):
    films, evaluate = scoring
    image, masks = simple_chest(3)
    film = films.Film("a", "a", image, masks, np.zeros(image.shape, bool), masks["right lung"])
    region = edit_region(masks)
    same = evaluate.Edit(image, np.zeros_like(image))
    assert evaluate.clipped(film, same) == 0
    assert evaluate.outline_step(film, same) == 0
    black = evaluate.Edit(np.where(region, 0, image).astype(np.uint8), np.where(region, image, 0).astype(np.uint8))
    assert evaluate.clipped(film, black) == np.mean(image[region] > 0)
    lowered = evaluate.Edit(np.where(region, image - 20, image).astype(np.uint8), np.where(region, 20, 0))
    assert image[region].min() >= 20
    assert evaluate.outline_step(film, lowered) == 20
