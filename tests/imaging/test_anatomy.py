"""Anatomy: zones by geometry, agreement with the organs, the stage on synthetic and real chests."""

import cv2
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_table
from cxr.base.vocabulary import ANATOMY_LABELS, LOBES, LUNGS, ORGAN_LABELS, ZONE_LABELS, zones_of
from cxr.imaging.anatomy import segment_anatomy, zones
from cxr.imaging.anatomy.segment_anatomy import load_engine
from cxr.imaging.anatomy.settings import AnatomySettings
from cxr.imaging.phantom.chest import draw_chest
from cxr.workflow.code_digest import RESOURCES

OPTIONS = AnatomySettings()


def ellipse(size: int, centre: tuple[int, int], axes: tuple[int, int], angle: float) -> np.ndarray:
    picture = np.zeros((size, size), np.uint8)
    return cv2.ellipse(picture, centre, axes, angle, 0, 360, 1, cv2.FILLED) > 0


@st.composite
def lung_pairs(draw) -> tuple[np.ndarray, np.ndarray]:
    """Two lung-like masks on a small grid: ellipses of any tilt and size, sometimes empty, thin or with holes."""
    size, pair = 96, []
    for middle in (28, 68):
        centre = (middle + draw(st.integers(-8, 8)), 48 + draw(st.integers(-15, 15)))
        axes = (draw(st.integers(0, 20)), draw(st.integers(0, 45)))
        mask = ellipse(size, centre, axes, draw(st.integers(-40, 40)))
        if draw(st.booleans()):
            mask &= np.random.default_rng(draw(st.integers(0, 99))).random(mask.shape) < 0.9
        pair.append(mask & draw(st.booleans().map(lambda keep: keep or draw(st.booleans()))))
    return tuple(pair)


@settings(max_examples=200, deadline=None)
@given(lung_pairs())
def test_zones_partition_each_lung_and_lobes_cover_it(pair):
    masks = zones.zone_masks(*pair)
    assert tuple(masks) == ZONE_LABELS
    for side, lung_name, lung in zip(("right", "left"), LUNGS, pair, strict=True):
        np.testing.assert_array_equal(masks[lung_name], lung)
        count = np.sum([masks[name] for name in zones_of(side)], axis=0)
        np.testing.assert_array_equal(count, lung.astype(int))
        lobes = np.logical_or.reduce([masks[name] for name in LOBES if name.endswith(side)])
        np.testing.assert_array_equal(lobes, lung)
    right = masks["lung upper lobe right"] & masks["lung middle lobe right"]
    assert not right.any()


@settings(max_examples=50, deadline=None)
@given(st.integers(-12, 12), st.integers(150, 200), st.integers(60, 90))
def test_zones_follow_one_another_from_apex_to_base(tilt, height, width):
    turn = cv2.getRotationMatrix2D((256, 256), tilt, 1.0)
    pair = [
        cv2.warpAffine(ellipse(512, (x, 256), (width, height), 0).astype(np.uint8), turn, (512, 512)) > 0
        for x in (150, 362)
    ]
    masks = zones.zone_masks(*pair)
    for side in ("right", "left"):
        rows = [np.nonzero(masks[name])[0].mean() for name in zones_of(side)]
        assert rows == sorted(rows)
        # Independent of the picture's tilt, each zone keeps its share of the ellipse (circle segments in closed form).
        inner = np.array([0.0, *zones.ZONE_ENDS, 1.0]) * 2 - 1
        below = (inner * np.sqrt(1 - inner**2) + np.arcsin(inner)) / np.pi
        area = pair[side == "left"].sum()
        for name, share in zip(zones_of(side), np.diff(below), strict=True):
            assert masks[name].sum() / area == pytest.approx(share, abs=0.02)
    upper, middle, lower = (
        np.nonzero(masks[f"lung {lobe} lobe right"])[0].mean() for lobe in ("upper", "middle", "lower")
    )
    assert upper < middle < lower


def test_tilt_of_the_chest_is_found_and_limited(monkeypatch):
    upright = [ellipse(512, (x, 256), (70, 180), slant) for x, slant in ((150, 8), (362, -8))]
    assert zones.chest_tilt(*upright) == pytest.approx(0, abs=0.01)
    turn = cv2.getRotationMatrix2D((256, 256), 10, 1.0)  # counterclockwise: the lower ends move to the right
    turned = [cv2.warpAffine(mask.astype(np.uint8), turn, (512, 512)) > 0 for mask in upright]
    assert np.degrees(zones.chest_tilt(*turned)) == pytest.approx(10, abs=0.5)
    monkeypatch.setattr(zones, "MAX_TILT", 4.0)
    assert np.degrees(zones.chest_tilt(*turned)) == pytest.approx(4)
    assert zones.chest_tilt(turned[0], np.zeros((512, 512), bool)) == 0


def test_medial_is_towards_the_midline_on_both_sides():
    pair = [ellipse(512, (x, 256), (70, 180), 0) for x in (150, 362)]
    masks = zones.zone_masks(*pair)
    row = 160  # above the lateral, below the medial beginning of the lower lobes
    right, left = (np.flatnonzero(masks[f"lung lower lobe {side}"][row + 70]) for side in ("right", "left"))
    assert right.mean() > 150
    assert left.mean() < 362


def test_engines_are_found_by_name():
    with pytest.raises(UserError, match=r"anatomy\.engine is 'atlas'.*lite"):
        load_engine("atlas", OPTIONS)


def organs(shift: tuple[int, int] = (0, 0), heart_shift: int = 0, without: str = "") -> dict[str, np.ndarray]:
    masks = {
        "right lung": ellipse(512, (150 - shift[0], 250), (70, 180), 0),
        "left lung": ellipse(512, (362 + shift[1], 250), (70, 180), 0),
        "heart": ellipse(512, (280, 340 + heart_shift), (80, 70), 0),
    }
    return masks | ({without: np.zeros((512, 512), bool)} if without else {})


@pytest.mark.parametrize(
    ("changed", "distance", "where"),
    [
        (organs(), 0.0, ""),
        (organs((26, 0)), 26 / 512, "outer edge of the right lung"),
        (organs((5, 20)), 20 / 512, "outer edge of the left lung"),
        (organs((5, 0), heart_shift=-30), 30 / 512, "lower edge of the heart"),
        (organs(without="heart"), np.inf, "lower edge of the heart"),
        (organs(without="left lung"), np.inf, "outer edge of the left lung"),
    ],
)
def test_disagreement_is_the_largest_distance_of_an_edge(changed, distance, where):
    assert segment_anatomy.disagreement(organs(), changed) == (distance, where)
    assert segment_anatomy.disagreement(changed, organs()) == (distance, where)


def test_disagreement_ignores_what_neither_has():
    assert segment_anatomy.disagreement(organs(without="heart"), organs((3, 0), without="heart"))[0] == 3 / 512


def write_shards(folder, pictures: dict[str, tuple[np.ndarray, dict[str, np.ndarray]]]) -> dict[str, str]:
    """Write a frames, an anomaly and an organs shard of {image_id: (edited, organs)}; the frames are white."""
    paths = {name: str(folder / f"{name}.h5") for name in ("frames", "anomaly", "organs")}
    with ShardWriter(paths["frames"]) as frames, ShardWriter(paths["anomaly"]) as writer:
        for name, (edited, _) in pictures.items():
            frames.append(name, image=np.full_like(edited, 255))
            writer.append(name, anomaly=255 - edited, brighter=np.zeros_like(edited))
    with ShardWriter(paths["organs"], labels=ORGAN_LABELS) as writer:
        for name, (_, masks) in pictures.items():
            writer.append(name, mask=np.stack([masks[label] for label in ORGAN_LABELS]))
    return paths


@pytest.fixture(scope="module")
def pictures() -> dict[str, tuple[np.ndarray, dict[str, np.ndarray]]]:
    found = {}
    for seed in (2, 1, 0):
        chest = draw_chest(np.random.default_rng([41, seed]), 512, cardiomegaly=seed == 1)
        found[f"chest{seed}"] = (np.round(chest.image * 255).astype(np.uint8), chest.masks)
    image, masks = found["chest0"]
    found["moved"] = (image, masks | {"right lung": np.roll(masks["right lung"], -60, axis=1)})
    found["blank"] = (np.zeros_like(image), masks)
    return found


def run(folder, paths, threads: int) -> tuple[bytes, bytes]:
    files = {"output": folder / f"out{threads}.h5", "excluded": folder / f"excluded{threads}.parquet"}
    segment_anatomy.run_shard(**paths, **files, options=OPTIONS, attrs={"stage": "anatomy"}, threads=threads)
    return files["output"].read_bytes(), files["excluded"].read_bytes()


def test_shard(tmp_path, pictures):
    paths = write_shards(tmp_path, pictures)
    assert run(tmp_path, paths, 1) == run(tmp_path, paths, 2)
    excluded = read_table(tmp_path / "excluded1.parquet")
    assert dict(excluded.select("image_id", "reason").rows()) == {
        "moved": "organ_disagreement",
        "blank": "missing_anatomy",
    }
    assert set(excluded["stage"]) == {"anatomy"}
    with Shard(tmp_path / "out1.h5") as shard:
        assert shard.labels() == list(ANATOMY_LABELS)
        assert sorted([*shard.ids, *excluded["image_id"]]) == sorted(pictures)
        for name in shard.ids:
            masks, truth = shard.masks(name), pictures[name][1]
            for label in (*LUNGS, "heart"):
                both = 2 * (masks[label] & truth[label]).sum() / (masks[label].sum() + truth[label].sum())
                assert both > 0.88, (name, label)
            columns = [np.nonzero(masks[f"{side} lung base"])[1].mean() for side in ("right", "left")]
            assert columns[0] < 256 < columns[1]


def test_empty_shard(tmp_path):
    for name, labels in (("frames", None), ("anomaly", None), ("organs", ORGAN_LABELS)):
        empty = {"image": ((512, 512), np.uint8)} if labels is None else {"mask": ((3, 512, 512), bool)}
        with ShardWriter(tmp_path / f"{name}.h5", labels=labels, empty=empty):
            pass
    run(tmp_path, {name: str(tmp_path / f"{name}.h5") for name in ("frames", "anomaly", "organs")}, 1)
    with Shard(tmp_path / "out1.h5") as shard:
        assert shard.labels() == list(ANATOMY_LABELS)
    assert read_table(tmp_path / "excluded1.parquet").height == 0


def test_engine_failure_costs_one_image(tmp_path, pictures, monkeypatch):
    engine = load_engine("lite", OPTIONS)
    bad = pictures["chest1"][0]

    class Fails:
        def segment(self, image):
            if np.array_equal(image, bad):
                raise ValueError("a detail that must not reach the ledger")
            return engine.segment(image)

    monkeypatch.setattr(segment_anatomy, "load_engine", lambda *_: Fails())
    run(tmp_path, write_shards(tmp_path, {name: pictures[name] for name in ("chest0", "chest1")}), 2)
    table = read_table(tmp_path / "excluded2.parquet")
    where = "cxr.imaging.anatomy.segment_anatomy.work"
    told = f"the engine stopped with ValueError in {where}; the first such error is in the job's log"
    assert table.select("image_id", "reason", "detail").rows() == [("chest1", "engine_failure", told)]


def test_real_images_have_every_label(shared):
    engine, net_file = load_engine("lite", OPTIONS), RESOURCES / "organs" / "lite.onnx"
    assert net_file.stat().st_size < 4 * 2**20
    rows = pl.read_csv(shared / "data" / "nih" / "nih.csv").sort("image").head(10)
    for name in rows["image"]:
        image = cv2.imread(str(shared / "data" / "nih" / "images" / name), cv2.IMREAD_GRAYSCALE)
        masks = engine.segment(cv2.resize(image, (512, 512), interpolation=cv2.INTER_AREA))
        assert masks.any(axis=(1, 2)).all(), name
