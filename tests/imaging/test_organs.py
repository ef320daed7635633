"""Organs: the lite net against human and synthetic masks, the quality checks, the stage, the engines by name."""

import json

import cv2
import numpy as np
import pytest

from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_table
from cxr.base.vocabulary import CARDIOMEDIASTINUM, LUNGS, ORGAN_LABELS
from cxr.geometry.affine import fit_affine, to_frame
from cxr.imaging.organs import quality, segment_organs
from cxr.imaging.organs.engine import load_engine
from cxr.imaging.phantom.chest import draw_chest
from cxr.nets.map_net import clean_mask, prepare_frame
from cxr.workflow.code_digest import RESOURCES
from organs_runs import OPTIONS, verdicts_of, write_frames
from simple_chests import simple_chest

LABELS = (*ORGAN_LABELS, CARDIOMEDIASTINUM)
POSTURES = ("not_a_radiograph", "heart_on_right")
FOLDER = RESOURCES / "organs"
WANTED = {"right lung": 0.92, "left lung": 0.90, CARDIOMEDIASTINUM: 0.88}
"""Required mean Dice on images with radiologists' masks."""


@pytest.fixture(scope="module")
def engine():
    return load_engine("lite", OPTIONS)


def found_on(engine, image: np.ndarray, shape: tuple[int, int] = (512, 512)) -> np.ndarray:
    """Masks of a frame made of an original of this shape."""
    return engine.segment(image, "i", fit_affine(shape, 512, "pad"), shape)


def dice(first: np.ndarray, second: np.ndarray) -> float:
    return float(2 * (first & second).sum() / max(1, first.sum() + second.sum()))


def framed(image: np.ndarray, nearest: bool = False) -> np.ndarray:
    return to_frame(image, fit_affine(image.shape, 512, "pad"), 512, nearest=nearest)


def phantom(seed: int, shape: tuple[int, int] = (512, 512), **kind) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    chest = draw_chest(np.random.default_rng([97, seed]), shape, **kind)
    masks = {name: framed(chest.masks[name].astype(np.uint8), nearest=True) > 0 for name in LABELS}
    return framed(np.round(chest.image * 255).astype(np.uint8)), masks


def read_grey(path) -> np.ndarray:
    return cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)


def covid_truth(shared, name: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """An X-ray with a radiologist's mask in the frame, read without the training code."""
    folder, stem = shared / "data" / "covid", name.rpartition(".")[0]
    files = {"right lung": "lung_right", "left lung": "lung_left", CARDIOMEDIASTINUM: "cardiomediastinum"}
    masks = {
        label: framed(read_grey(folder / "masks" / f"{stem}__{file}.png"), nearest=True) > 127
        for label, file in files.items()
    }
    return framed(read_grey(folder / "images" / name)), masks


def covid_names(shared) -> list[str]:
    masks = (shared / "data" / "covid" / "masks").glob("*__cardiomediastinum.png")
    stems = sorted(path.name.split("__")[0] for path in masks)
    images = {path.stem: path.name for path in (shared / "data" / "covid" / "images").iterdir()}
    return [images[stem] for stem in stems]


def test_cross_validation_reaches_what_is_asked():
    result = json.loads((FOLDER / "cross_validation.json").read_text(encoding="utf-8"))
    rows = result["images"]
    assert len(rows) == 18
    assert len({row["image"] for row in rows}) == 18
    folds_of = {row["patient"]: {r["fold"] for r in rows if r["patient"] == row["patient"]} for row in rows}
    assert len(folds_of) == 16
    assert all(len(folds) == 1 for folds in folds_of.values())
    for label, wanted in WANTED.items():
        mean = float(np.mean([row[label] for row in rows]))
        assert mean >= wanted
        assert result["mean"][label] == pytest.approx(mean, abs=1e-3)


def test_card_states_the_cross_validation():
    card = (FOLDER / "CARD.md").read_text(encoding="utf-8")
    mean = json.loads((FOLDER / "cross_validation.json").read_text(encoding="utf-8"))["mean"]
    assert "| all | 18 | " + " | ".join(f"{mean[label]:.3f}" for label in LABELS) + " |" in card
    assert "non-commercial" in card


def test_shipped_net_on_radiologists_masks(shared, engine):
    scores = {label: [] for label in WANTED}
    for name in covid_names(shared):
        image, truth = covid_truth(shared, name)
        found = dict(zip(engine.labels, found_on(engine, image), strict=True))
        for label in WANTED:
            scores[label].append(dice(found[label], truth[label]))
    assert len(scores["right lung"]) == 18
    for label, wanted in WANTED.items():
        assert np.mean(scores[label]) >= wanted + 0.02, label  # it was trained on them: held out it reaches ``wanted``


def test_held_out_synthetic_chests(engine):
    scores = {label: [] for label in LABELS}
    for seed in range(12):
        image, truth = phantom(seed, ((512, 512), (512, 430))[seed % 2], cardiomegaly=seed % 3 == 0, ap=seed % 4 == 1)
        for label, mask in zip(engine.labels, found_on(engine, image), strict=True):
            scores[label].append(dice(mask, truth[label]))
    for label, values in scores.items():
        assert np.mean(values) >= 0.93, label
        assert min(values) >= 0.85, label


def ratio(masks: dict[str, np.ndarray]) -> float:
    heart, lungs = (
        np.flatnonzero(mask.any(axis=0)) for mask in (masks["heart"], masks["right lung"] | masks["left lung"])
    )
    return (heart[-1] - heart[0]) / (lungs[-1] - lungs[0])


def test_cardiothoracic_ratio_tells_large_from_normal_hearts(engine):
    ratios, errors = {True: [], False: []}, []
    for seed in range(20, 30):
        image, truth = phantom(seed, cardiomegaly=seed % 2 == 0)
        found = dict(zip(engine.labels, found_on(engine, image), strict=True))
        ratios[seed % 2 == 0].append(ratio(found))
        errors.append(ratio(found) - ratio(truth))
    assert np.abs(errors).mean() < 0.04
    assert max(ratios[False]) < min(ratios[True])


def test_cardiothoracic_ratio_of_real_images_is_plausible(shared, engine):
    ratios = []
    for path in sorted((shared / "data" / "nih" / "images").glob("*.png"))[::6]:
        ratios.append(ratio(dict(zip(engine.labels, found_on(engine, framed(read_grey(path))), strict=True))))
    assert 0.42 <= np.median(ratios) <= 0.56
    assert min(ratios) > 0.25
    assert max(ratios) < 0.80


def test_prepare_ignores_padding_and_exposure():
    image, _ = phantom(1)
    wide = np.zeros((512, 512), np.uint8)
    wide[:, 128:384] = cv2.resize(image, (256, 512), interpolation=cv2.INTER_AREA)
    shown = prepare_frame(wide, 128, (0.5, 99.5))
    assert shown.dtype == np.float32
    assert shown.min() == 0
    assert shown.max() == 1
    dark = prepare_frame((wide // 2).astype(np.uint8), 128, (0.5, 99.5))
    np.testing.assert_allclose(dark, shown, atol=0.03)
    assert not prepare_frame(np.zeros((512, 512), np.uint8), 128, (0.5, 99.5)).any()


def test_clean_mask_keeps_one_whole_region():
    picture = np.zeros((64, 64), np.float32)
    picture[5:40, 5:40] = 0.9
    picture[10:20, 10:20] = 0.1  # a hole
    picture[40:44, 40:44] = 0.9  # touches at a corner: 8-connected
    picture[50:60, 50:60] = 0.9  # smaller
    wanted = np.zeros((64, 64), bool)
    wanted[5:40, 5:40] = wanted[40:44, 40:44] = True
    np.testing.assert_array_equal(clean_mask(picture), wanted)
    assert not clean_mask(np.full((8, 8), 0.5)).any()


def test_engines_are_found_by_name():
    with pytest.raises(UserError, match=r"organs\.engine is 'best'.*lite"):
        load_engine("best", OPTIONS)
    with pytest.raises(UserError, match=r"quality"):
        load_engine("quality", OPTIONS)  # a module of the package that is not an engine


def test_content_rectangle():
    tall = fit_affine((1000, 600), 512, "pad")
    assert quality.content_rectangle(tall, (1000, 600), 512) == pytest.approx((102.4, 0, 409.6, 512))
    assert quality.content_rectangle(fit_affine((1000, 600), 512, "crop"), (1000, 600), 512) == (0, 0, 512, 512)


def test_border_share():
    mask = np.zeros((512, 512), bool)
    mask[100:200, 0:50] = True  # 296 outline pixels, 100 of them in column 0, 2 more in each column beside it
    assert quality.border_share(mask, (0, 0, 512, 512), 1) == pytest.approx(100 / 296)
    assert quality.border_share(mask, (0, 0, 512, 512), 11) == pytest.approx(120 / 296)
    assert quality.border_share(mask, (-9, 0, 512, 512), 9) == 0
    assert quality.border_share(np.roll(mask, 100, axis=1), (100, 0, 400, 512), 2) == pytest.approx(102 / 296)
    assert quality.border_share(np.zeros_like(mask), (0, 0, 512, 512), 2) == 0


def bad_pictures() -> dict[str, np.ndarray]:
    """Original pictures of any shape that are no whole chest."""
    chest = np.round(draw_chest(np.random.default_rng(5), 512).image * 255).astype(np.uint8)
    random = np.random.default_rng(0)
    return {
        "black": np.zeros((512, 512), np.uint8),
        "grey": np.full((400, 512), 120, np.uint8),
        "noise": random.integers(0, 256, (512, 512), dtype=np.uint8),
        "ramp": np.tile(np.arange(512, dtype=np.uint16) // 2, (512, 1)).astype(np.uint8),
        "flat": (chest // 32 + 110).astype(np.uint8),
        "two grey levels": np.where(chest > np.median(chest), 255, 0).astype(np.uint8),
        "on its side": np.rot90(chest).copy(),
        "upper half": chest[:230],
        "right half": chest[:, :256],
        "left half": chest[:, 256:],
        "right lung only": chest[60:380, 20:250],
        "lower half": chest[260:],
    }


def good_pictures() -> dict[str, np.ndarray]:
    kinds = [((512, 512), {}), ((600, 500), {"ap": True}), ((500, 620), {"cardiomegaly": True})]
    return {
        f"chest{seed}": np.round(draw_chest(np.random.default_rng([7, seed]), shape, **kind).image * 255).astype(
            np.uint8
        )
        for seed, (shape, kind) in enumerate(kinds)
    }


def white_out(seed: int, shift: int) -> np.ndarray:
    """Return a chest whose left lung is as white as the heart, the mediastinum moved towards it by ``shift`` pixels."""
    image, masks = phantom(seed)
    white = np.median(image[masks["heart"]])
    opaque = cv2.GaussianBlur(cv2.dilate(masks["left lung"].astype(np.float32), np.ones((41, 41))), (0, 0), 12)
    mixed = image * (1 - opaque) + white * opaque
    columns = np.interp(np.arange(512), [0, 256 + shift, 511], [0, 256, 511])
    rows = np.arange(512, dtype=np.float32)[:, None] + np.zeros((1, 512), np.float32)
    return cv2.remap(mixed, np.tile(columns.astype(np.float32), (512, 1)), rows, cv2.INTER_LINEAR).astype(np.uint8)


def test_a_lung_that_is_lost_because_it_is_white_is_called_so(tmp_path):
    pictures = {f"{seed}-{shift}": white_out(seed, shift) for seed in range(4) for shift in (60, 100)}
    verdicts = verdicts_of(tmp_path, write_frames(tmp_path / "frames.h5", pictures | good_pictures()))
    for name in pictures:
        assert verdicts[name] == ("white_out", "the left lung is not visible, and its side of the chest is white"), name
    assert {verdicts[name][0] for name in good_pictures()} == {""}


@pytest.mark.parametrize(
    ("grey", "crop", "lost", "reason"),
    [
        (190, 0, "right lung", "white_out"),
        (190, 0, "left lung", "white_out"),
        (80, 0, "right lung", "no_lungs"),  # a dark lung that the engine misses
        (190, 200, "right lung", "no_lungs"),  # the image ends at the mediastinum
    ],
)
def test_a_white_out_needs_a_white_side_in_the_image(grey, crop, lost, reason):
    image, masks = simple_chest(1)
    image[masks[lost] & ~masks["heart"]] = grey
    image, masks = image[:, crop:], {name: mask[:, crop:] & (name != lost) for name, mask in masks.items()}
    affine = np.array([[1, 0, 0], [0, 1, 0]], float)
    fault = quality.find_fault(image, masks, affine, image.shape)
    assert fault[0] == reason
    assert lost in fault[1]
    both_lost = masks | dict.fromkeys(LUNGS, np.zeros_like(masks[lost]))
    assert quality.find_fault(image, both_lost, affine, image.shape)[0] == "no_lungs"


def run(folder, frames: str, threads: int = 1) -> dict[str, str]:
    return {name: reason for name, (reason, _) in verdicts_of(folder, frames, threads=threads).items()}


def test_shard_keeps_chests_and_gives_a_reason_for_the_rest(tmp_path):
    good, bad = good_pictures(), bad_pictures()
    frames = write_frames(tmp_path / "frames.h5", bad | good)
    verdicts = run(tmp_path, frames)
    assert sorted(verdicts) == sorted({**good, **bad})
    assert {name: verdicts[name] for name in good} == dict.fromkeys(good, "")
    kept = [name for name in bad if verdicts[name] not in {"no_lungs", "cut_off", "extreme_contrast", *POSTURES}]
    assert not kept
    assert {verdicts[name] for name in ("black", "grey", "noise", "ramp")} == {"not_a_radiograph"}
    with Shard(tmp_path / "out1.h5") as shard:
        assert shard.labels() == list(LABELS)
        assert shard.ids == sorted(shard.ids)
        for name in shard.ids:
            columns = [np.nonzero(shard.masks(name)[lung])[1].mean() for lung in LUNGS]
            assert columns[0] < 256 < columns[1]  # the patient's right is on the image's left


def test_same_bytes_for_any_number_of_threads(tmp_path):
    frames = write_frames(tmp_path / "frames.h5", good_pictures() | {"black": np.zeros((512, 512), np.uint8)})
    run(tmp_path, frames, 1)
    first = (tmp_path / "out1.h5").read_bytes()
    run(tmp_path, frames, 1)
    run(tmp_path, frames, 2)
    assert first == (tmp_path / "out1.h5").read_bytes() == (tmp_path / "out2.h5").read_bytes()
    assert (tmp_path / "excluded1.parquet").read_bytes() == (tmp_path / "excluded2.parquet").read_bytes()


def test_empty_shard(tmp_path):
    empty = {"image": ((512, 512), np.uint8), "to_original": ((2, 3), float), "original_shape": ((2,), np.int32)}
    with ShardWriter(tmp_path / "frames.h5", empty=empty):
        pass
    assert run(tmp_path, str(tmp_path / "frames.h5")) == {}
    with Shard(tmp_path / "out1.h5") as shard:
        assert shard.labels() == list(LABELS)


def test_engine_failure_costs_one_image(tmp_path, engine, monkeypatch):
    class Fails:
        labels = engine.labels

        def segment(self, image, image_id, to_original, original_shape):
            if image_id == "fails":
                raise RuntimeError("a detail that must not reach the ledger")
            return engine.segment(image, image_id, to_original, original_shape)

    monkeypatch.setattr(segment_organs, "load_engine", lambda *_: Fails())
    pictures = good_pictures() | {"fails": next(iter(good_pictures().values()))}
    verdicts = run(tmp_path, write_frames(tmp_path / "frames.h5", pictures))
    assert verdicts == dict.fromkeys(good_pictures(), "") | {"fails": "engine_failure"}
    assert read_table(tmp_path / "excluded1.parquet")["detail"].to_list() == [
        "the engine stopped with RuntimeError in cxr.imaging.organs.segment_organs.segment; "
        "the first such error is in the job's log"
    ]


@pytest.mark.slow
def test_real_chests_pass(tmp_path, shared):
    folder = shared / "data" / "nih" / "images"
    pictures = {path.stem: read_grey(path) for path in sorted(folder.glob("*.png"))}
    verdicts = run(tmp_path, write_frames(tmp_path / "frames.h5", pictures), 2)
    assert len(verdicts) == 98
    assert sum(reason == "" for reason in verdicts.values()) >= 0.97 * 98
    assert [name for name, reason in verdicts.items() if reason == "white_out"] == ["00001986_011"]
