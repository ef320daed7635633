"""The engine hybridgnet: graphs, filters and look-ups compared with their definitions, then images in the stage."""

import re
from collections import OrderedDict
from dataclasses import replace
from itertools import combinations

import cv2
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from scipy.signal import correlate2d

from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.vocabulary import ORGAN_LABELS
from cxr.geometry.affine import fit_affine, points_to_frame, points_to_original, to_frame
from cxr.imaging.organs import hybridgnet
from cxr.imaging.organs.engine import NoOrgans, load_engine
from cxr.imaging.organs.hybridgnet import HybridGNetOrgans, make_square_input
from cxr.imaging.organs.hybridgnet.net import (
    RINGS,
    Block,
    Encoder,
    GraphConv,
    HybridGNet,
    doubling,
    look_up,
    scaled_laplacian,
)
from cxr.imaging.phantom.chest import draw_chest
from cxr.workflow.engine_files import read_declaration
from organs_runs import OPTIONS, verdicts_of, write_frames
from tiny_hybridgnet import OVALS, coarse_ovals, publish, random_weights, told

BLACK = np.zeros((400, 300), np.uint8)
HALVES = tuple(count // 2 for count in RINGS)


@pytest.fixture(scope="module")
def ovals_net(tmp_path_factory) -> str:
    return publish(tmp_path_factory.mktemp("told"), told(coarse_ovals()))


@pytest.fixture(scope="module")
def random_net(tmp_path_factory) -> str:
    return publish(tmp_path_factory.mktemp("random"), random_weights())


def engine(weights: str):
    return load_engine("hybridgnet", OPTIONS, Setup(files={"weights": weights}, device="cpu"))


def chest(seed: int, shape: tuple[int, int]) -> np.ndarray:
    return np.round(draw_chest(np.random.default_rng([5, seed]), shape).image * 255).astype(np.uint8)


# the net


def test_parameters_are_those_of_the_published_weights():
    held = {name: tuple(value.shape) for name, value in HybridGNet().state_dict().items()}
    assert len(held) == 107
    assert sum(int(np.prod(shape)) for shape in held.values()) == 17_511_090
    some = {
        "encoder.dconv_down1.skip.0.weight": (8, 1, 1, 1),
        "encoder.dconv_down1.skip.1.bias": (8,),
        "encoder.dconv_down5.block.0.weight": (64,),
        "encoder.dconv_down5.block.5.weight": (128, 128, 3, 3),
        "encoder.dconv_down6.block.2.bias": (128,),
        "encoder.fc_logvar.weight": (64, 131072),
        "dec_lin.weight": (960, 64),
        "graphConv_up4.lins.5.weight": (32, 146),
        "graphConv_up2.bias": (32,),
        "graphConv_up1.lins.0.weight": (2, 32),
        "SC_2.graphConv_pre.lins.0.weight": (2, 32),
    }
    assert some.items() <= held.items()
    assert not {"encoder.dconv_down6.skip.0.weight", "graphConv_up1.bias", "SC_1.graphConv_pre.bias"} & held.keys()


def adjacency(rings: tuple[int, ...]) -> np.ndarray:
    wanted, first = np.zeros((sum(rings),) * 2), 0
    for count in rings:
        for node in range(count):
            wanted[first + node, first + (node + 1) % count] = wanted[first + (node + 1) % count, first + node] = 1
        first += count
    return wanted


@pytest.mark.parametrize("rings", [RINGS, HALVES, (3, 4)])
def test_laplacian(rings):
    edges = adjacency(rings)
    degrees = np.diag(edges.sum(axis=1) ** -0.5)
    laplacian = np.eye(len(edges)) - degrees @ edges @ degrees
    np.testing.assert_allclose(scaled_laplacian(rings), 2 * laplacian / 2 - np.eye(len(edges)), atol=1e-7)


def test_doubling_puts_landmarks_between_neighbours():
    wanted, fine, coarse = np.zeros((120, 60)), 0, 0
    for count in RINGS:
        for node in range(count):
            wanted[fine + node, coarse + node // 2] += 1 if node % 2 == 0 else 0.5
            if node % 2:
                wanted[fine + node, coarse + (node // 2 + 1) % (count // 2)] += 0.5
        fine, coarse = fine + count, coarse + count // 2
    np.testing.assert_array_equal(doubling(RINGS), wanted)


def filtered(x: np.ndarray, rings: tuple[int, ...], weights: list[np.ndarray], bias: np.ndarray | float) -> np.ndarray:
    """A graph filter by its definition: Chebyshev polynomials of the eigenvalues, cos(k arccos)."""
    values, vectors = np.linalg.eigh(-adjacency(rings) / 2)
    angle = np.arccos(np.clip(values, -1, 1))
    terms = [vectors @ np.diag(np.cos(order * angle)) @ vectors.T @ x for order in range(len(weights))]
    return sum(term @ weight.T for term, weight in zip(terms, weights, strict=True)) + bias


@pytest.mark.parametrize("order", [1, 2, 6])
def test_graph_filter(order):
    random = np.random.default_rng(order)
    layer = GraphConv(5, 3, order).double()
    with torch.no_grad():
        layer.bias.copy_(torch.from_numpy(random.normal(size=3)))
    weights = [lin.weight.detach().numpy() for lin in layer.lins]
    x = random.normal(size=(2, sum(RINGS), 5))
    found = layer(torch.from_numpy(x), scaled_laplacian(RINGS).double()).detach().numpy()
    for row, signal in zip(found, x, strict=True):
        np.testing.assert_allclose(row, filtered(signal, RINGS, weights, layer.bias.detach().numpy()), atol=1e-10)


def bilinear(layer: np.ndarray, y: np.float32, x: np.float32) -> np.ndarray:
    size = layer.shape[-1]
    if not (-1 <= y <= size and -1 <= x <= size):
        return np.zeros(len(layer))
    y, x = (min(max(float(value), 0), size - 1) for value in (y, x))
    top, left = int(y), int(x)
    bottom, right = min(top + 1, size - 1), min(left + 1, size - 1)
    v, u = y - top, x - left
    upper = (1 - u) * layer[:, top, left] + u * layer[:, top, right]
    return (1 - v) * upper + v * ((1 - u) * layer[:, bottom, left] + u * layer[:, bottom, right])


def aligned(layer: np.ndarray, point: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """RoIAlign of one cell with aligned, adaptive samples, in float32, by its definition."""
    one, half = np.float32(1), np.float32(0.5)
    centre = point.astype(np.float32) * np.float32(layer.shape[-1])
    begin, end = centre - one - half, centre + np.float32(2) - half
    width = end - begin
    counts = [int(np.ceil(side)) for side in width]
    across, down = (
        [
            begin[axis] + (np.float32(step) + half) * width[axis] / np.float32(counts[axis])
            for step in range(counts[axis])
        ]
        for axis in (0, 1)
    )
    return np.mean([bilinear(layer, y, x) for y in down for x in across], axis=0), counts


def test_look_up_is_region_of_interest_alignment():
    random = np.random.default_rng(1)
    layer = random.normal(size=(4, 32, 32)).astype(np.float32)
    edges = [[0, 0], [1, 1], [0.5, 1.03], [-0.02, 0.3], [1.5, 0.5], [0.97, 0.99], [-3, 9]]
    points = np.concatenate([random.uniform(-0.1, 1.1, (113, 2)), edges]).astype(np.float32)
    found = look_up(torch.from_numpy(layer)[None], torch.from_numpy(points)[None])[0].numpy()
    wanted, counts = zip(*(aligned(layer, point) for point in points), strict=True)
    assert {count for pair in counts for count in pair} == {3, 4}  # rounding makes some windows wider than three
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    assert np.abs(found[:7]).max() > 0.1
    assert not found[-1].any()


def test_look_up_takes_x_along_the_columns():
    columns = torch.arange(32.0).expand(32, 32)
    points = torch.tensor([[[0.25, 0.75], [0.5, 0.125]]])
    found = look_up(torch.stack([columns, columns.T])[None], points)
    torch.testing.assert_close(
        found, points * 32
    )  # a linear picture: its mean over a window is its value at the centre


def normalized(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axis=axes, keepdims=True)) / np.sqrt(x.var(axis=axes, keepdims=True) + 1e-5)


@pytest.mark.parametrize("after", [2, 3])
def test_block_of_the_encoder(after):
    random = np.random.default_rng(after)
    block = Block(2, after).double()
    held = {name: random.normal(size=value.shape) for name, value in block.state_dict().items()}
    block.load_state_dict({name: torch.from_numpy(value) for name, value in held.items()})

    def convolved(x: np.ndarray, name: str) -> np.ndarray:
        kernels = held[f"{name}.weight"]
        maps = [sum(correlate2d(c, k, "same") for c, k in zip(x, kernel, strict=True)) for kernel in kernels]
        return np.stack(maps) + held.get(f"{name}.bias", np.zeros(len(kernels)))[:, None, None]

    def scaled(x: np.ndarray, name: str) -> np.ndarray:
        return normalized(x, (1, 2)) * held[f"{name}.weight"][:, None, None] + held[f"{name}.bias"][:, None, None]

    def expected(x: np.ndarray) -> np.ndarray:
        inner = convolved(np.maximum(scaled(x, "block.0"), 0), "block.2")
        inner = convolved(np.maximum(scaled(inner, "block.3"), 0), "block.5")
        shortcut = x if after == 2 else scaled(convolved(x, "skip.0"), "skip.1")
        return np.maximum(inner + shortcut, 0)

    x = random.normal(size=(3, 2, 9, 8))
    found = block(torch.from_numpy(x)).detach().numpy()
    # each picture by its own statistics, whatever else the batch holds
    for row, picture in zip(found, x, strict=True):
        np.testing.assert_allclose(row, expected(picture), atol=1e-10)


def test_encoder_halves_five_times():
    with torch.inference_mode():
        latent, fine, coarse = Encoder().eval()(torch.zeros(1, 1, 1024, 1024))
    assert [tuple(part.shape) for part in (latent, fine, coarse)] == [(1, 64), (1, 128, 64, 64), (1, 128, 32, 32)]


def test_decoder_is_that_of_the_paper():
    random = np.random.default_rng(4)
    net = HybridGNet().double().eval()
    held = {name: value for name, value in net.state_dict().items() if not name.startswith("encoder")}
    for name, value in held.items():
        drawn = random.normal(size=value.shape) / 8
        if name.startswith("SC"):
            drawn = random.uniform(0, 2, value.shape) / value.shape[1]
        value.copy_(torch.from_numpy(drawn))
    ramps = random.normal(size=(2, 128, 3))  # features that are linear in x and y have their own value as mean

    def features(size: int, ramp: np.ndarray) -> torch.Tensor:
        y, x = np.mgrid[:size, :size] / size
        return torch.from_numpy(np.einsum("cr,rhw->chw", ramp, np.stack([x, y, np.ones_like(x)])))[None]

    latent = random.normal(size=(1, 64))
    with torch.inference_mode():
        found = net.decode(torch.from_numpy(latent), features(64, ramps[0]), features(32, ramps[1]))[0].numpy()

    def weights(name: str) -> list[np.ndarray]:
        return [held[f"{name}.lins.{k}.weight"].numpy() for k in range(6) if f"{name}.lins.{k}.weight" in held]

    def filters(x: np.ndarray, name: str, rings: tuple[int, ...]) -> np.ndarray:
        return np.maximum(normalized(filtered(x, rings, weights(name), held[f"{name}.bias"].numpy()), (1,)), 0)

    def looked(x: np.ndarray, name: str, ramp: np.ndarray, rings: tuple[int, ...]) -> np.ndarray:
        points = filtered(x, rings, weights(f"{name}.graphConv_pre"), 0)
        assert points.min() > 0.1  # inside, so that the ramps hold
        assert points.max() < 0.9
        seen = np.concatenate([points, np.ones((len(points), 1))], axis=1) @ ramp.T
        return np.concatenate([x, seen, points], axis=1)

    flat = held["dec_lin.weight"].numpy() @ latent[0] + held["dec_lin.bias"].numpy()
    x = np.maximum(flat, 0).reshape(60, 16)
    x = filters(filters(x, "graphConv_up6", HALVES), "graphConv_up5", HALVES)
    x = filters(looked(x, "SC_1", ramps[1], HALVES), "graphConv_up4", HALVES)
    x = filters(doubling(RINGS).numpy() @ x, "graphConv_up3", RINGS)
    x = filters(looked(x, "SC_2", ramps[0], RINGS), "graphConv_up2", RINGS)
    np.testing.assert_allclose(found, filtered(x, RINGS, weights("graphConv_up1"), 0), atol=1e-8)


# pictures


def told_landmarks() -> np.ndarray:
    """What the told net answers, in pixels: the coarse landmarks, and between them the normalized mean of features."""
    points = coarse_ovals()
    whole = np.column_stack([points, np.sqrt(8 - (points**2).sum(axis=1))])
    between = doubling(RINGS).numpy() @ whole
    return 1024 * (between * np.sqrt(8) / np.linalg.norm(between, axis=1, keepdims=True))[:, :2]


def test_a_told_net_answers_with_its_landmarks(ovals_net):
    found = engine(ovals_net).landmarks([np.random.default_rng(0).integers(0, 256, (1024, 1024), dtype=np.uint8)])[0]
    np.testing.assert_allclose(found, told_landmarks(), atol=0.05)


def test_the_net_is_shown_grey_levels_as_shares_of_white(ovals_net):
    shown = []
    organs = engine(ovals_net)
    organs._net.register_forward_pre_hook(lambda _, given: shown.append(given[0]))
    organs.landmarks([np.resize(np.array([0, 51, 255], np.uint8), (1024, 1024))])
    assert shown[0].dtype == torch.float32
    assert shown[0].shape == (1, 1, 1024, 1024)
    torch.testing.assert_close(shown[0][0, 0, 0, :3], torch.tensor([0, 0.2, 1]), rtol=0, atol=1e-7)


def test_square_is_the_picture_without_borders_in_its_true_aspect():
    original = np.zeros((600, 400), np.uint8)
    original[100:500, 80:360] = 200  # 400 rows, 280 columns: from 1 to 0.7
    original[300, 0] = 1  # black enough
    for fit in ("pad", "stretch"):
        affine = fit_affine(original.shape, 512, fit)
        square, back = make_square_input(to_frame(original, affine, 512), np.diag(affine))
        assert square.shape == (1024, 1024)
        assert (square[:, 160:864] > 190).mean() > 0.98  # 0.7 of 1024 columns, centred
        assert not square[:, :150].any()
        assert not square[:, 874:].any()
        corners = points_to_original(np.array([[153.6, 0], [870.4, 1024]]), back)
        corners = points_to_original(corners, affine)
        np.testing.assert_allclose(corners, [[80, 100], [360, 500]], atol=2)  # to two pixels of the frame
    with pytest.raises(NoOrgans, match="the image is black"):
        make_square_input(np.ones((512, 512), np.uint8), np.array([1.0, 1.0]))


@pytest.mark.parametrize("fit", ["pad", "stretch"])
def test_masks_lie_where_the_landmarks_are(ovals_net, fit):
    original = np.full((700, 500), 90, np.uint8)
    affine = fit_affine(original.shape, 512, fit)
    frame = to_frame(original, affine, 512)
    found = engine(ovals_net).segment(frame, "", affine, original.shape)
    assert found.dtype == bool
    assert found.shape == (3, 512, 512)
    points = points_to_frame(told_landmarks() / 1024 * 700 - [100, 0], affine)  # the square is 100 px wider
    for mask, part in zip(found, np.split(points, [44, 94]), strict=True):
        wanted = cv2.fillPoly(np.zeros((512, 512), np.uint8), [np.round(part).astype(np.int32)], 1).astype(bool)
        assert 2 * (mask & wanted).sum() > 0.97 * (mask.sum() + wanted.sum())
    right, left, heart = (np.nonzero(mask)[1].mean() for mask in found)
    assert right < heart < left


def test_outlines_end_with_the_picture(tmp_path):
    wide = publish(tmp_path, told(coarse_ovals() * [1.6, 1] - [0.3, 0]))  # lungs from -0.01 to 1.01 of the square
    affine = fit_affine((700, 500), 512, "pad")
    found = engine(wide).segment(np.full((512, 512), 90, np.uint8), "", affine, (700, 500))
    picture = to_frame(np.ones((700, 500), np.uint8), affine, 512, nearest=True) > 0
    assert found.any(axis=(1, 2)).all()
    assert not found[:, ~picture].any()


def run(folder, weights: str, pictures: dict[str, np.ndarray], threads: int = 1) -> dict[str, tuple[str, str]]:
    frames = write_frames(folder / "frames.h5", pictures)
    return verdicts_of(folder, frames, replace(OPTIONS, engine="hybridgnet"), threads, weights=weights)


def test_through_the_stage(tmp_path, ovals_net):
    pictures = {"a": chest(0, (512, 512)), "b": chest(1, (600, 500)), "black": BLACK}
    for threads in (1, 2):
        found = run(tmp_path, ovals_net, pictures, threads)
        assert found == {
            "a": ("", ""),
            "b": ("", ""),
            "black": ("not_a_radiograph", "nothing in the image looks like a complete chest"),
        }
    assert (tmp_path / "out1.h5").read_bytes() == (tmp_path / "out2.h5").read_bytes()
    with Shard(tmp_path / "out1.h5") as shard:
        assert tuple(shard.labels()) == ORGAN_LABELS == tuple(OVALS)
        for name in ("a", "b"):
            masks = shard.masks(name)
            assert 0.09 < masks["right lung"].mean() < 0.13


def moving_ovals() -> OrderedDict:
    """Weights of a net whose ovals move with what a random encoder sees; rounding moves them by 0.001 px.

    Random weights alone will not do: their graph filters turn rounding into tens of pixels.
    """
    encoder = {name: value for name, value in random_weights().items() if name.startswith("encoder")}
    weights = told(coarse_ovals()) | encoder
    weights["dec_lin.weight"][0::16, :32] = weights["dec_lin.weight"][1::16, 32:] = 0.02
    return weights


@pytest.mark.slow
def test_a_batch_gives_each_picture_its_masks(tmp_path, monkeypatch):
    """The batch of a GPU, on the CPU, with a black picture in it; its sums round differently."""
    weights = publish(tmp_path, moving_ovals())
    pictures = {name: chest(seed, (512, 512)) for seed, name in enumerate("abcd")} | {"black": BLACK}
    verdicts = run(tmp_path, weights, pictures)
    assert [name for name, (reason, _) in verdicts.items() if not reason] == ["a", "b", "c", "d"]
    with Shard(tmp_path / "out1.h5") as shard:
        alone = {name: shard.get("mask", name) for name in shard.ids}
    assert min((one != other).mean() for one, other in combinations(alone.values(), 2)) > 1e-3
    load = hybridgnet.load

    def batched(options, setup):
        loaded = load(options, setup)
        loaded.batch = 3
        return loaded

    monkeypatch.setattr(hybridgnet, "load", batched)
    monkeypatch.setattr(HybridGNetOrgans, "segment", None)
    assert run(tmp_path, weights, pictures) == verdicts
    with Shard(tmp_path / "out1.h5") as shard:
        for name, masks in alone.items():
            assert (shard.get("mask", name) != masks).mean() < 1e-4


def test_a_picture_gives_the_same_masks_whatever_is_beside_it(tmp_path, random_net):
    net = engine(random_net)
    affine = fit_affine((512, 512), 512, "pad")
    first, second = (chest(seed, (512, 512)) for seed in (0, 1))
    alone = [net.landmarks([make_square_input(picture, np.diag(affine))[0]])[0] for picture in (first, second)]
    assert np.isfinite(alone).all()
    pictures = {"a": first, "b": second, "c": first}
    verdicts = run(tmp_path, random_net, pictures, threads=2)
    assert verdicts["a"] == verdicts["c"]
    np.testing.assert_array_equal(net.landmarks([make_square_input(first, np.diag(affine))[0]])[0], alone[0])


# weights


def test_the_workflow_knows_what_it_needs():
    assert read_declaration("cxr.imaging.organs", "hybridgnet", "GPU", False) is True
    assert read_declaration("cxr.imaging.organs", "hybridgnet", "INPUTS", {}) == {
        "weights": "results/weights/hybridgnet.safetensors"
    }


def lungs_only(weights: OrderedDict) -> None:
    weights["dec_lin.weight"], weights["dec_lin.bias"] = torch.zeros(752, 64), torch.zeros(752)


@pytest.mark.parametrize(
    ("change", "told_of"),
    [
        (lungs_only, "the shape differs for dec_lin.bias and 1 more of 107"),
        (lambda held: held.pop("graphConv_up3.bias"), "it lacks graphConv_up3.bias"),
    ],
)
def test_weights_of_another_net_are_refused(tmp_path, change, told_of):
    weights = random_weights()
    change(weights)
    path = publish(tmp_path, weights)
    with pytest.raises(UserError, match=re.escape(f"{path} holds weights that do not fit the net ({told_of}): delete")):
        engine(path)


def test_a_tensor_that_is_not_the_nets_is_left_aside(tmp_path):
    path = publish(tmp_path, random_weights() | {"A": torch.zeros(120, 120)})
    with safe_open(path, "pt") as file:
        assert set(file.keys()) == set(random_weights())
    engine(path)


def test_whole_numbers_are_no_weights(tmp_path):
    path = publish(tmp_path, random_weights() | {"dec_lin.bias": torch.zeros(960, dtype=torch.int64)})
    with pytest.raises(UserError, match=rf"^{path} holds numbers of a type that does not fit the net: delete it"):
        engine(path)


def test_damaged_weights_are_refused(tmp_path):
    path = tmp_path / "hybridgnet.safetensors"
    save_file({"dec_lin.bias": torch.zeros(960)}, path)
    for content in (path.read_bytes()[:-8], b"", b"<html>Quota exceeded</html>"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"^{path} is missing, damaged or not a safetensors file: delete"):
            engine(str(path))
