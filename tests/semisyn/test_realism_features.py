"""Engines of features: each against the net it stands for, all with one form of file; distances that come of them."""

import hashlib
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import save_file
from transformers import CLIPProcessor

from conversions import converter
from cxr.base.engines import Setup, engine_module, engine_names
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.paths import RESOURCES
from cxr.base.tables import read_table, write_table
from cxr.metrics.distances import BLOCK, kid, kid_of_subsets
from cxr.nets import onnx
from cxr.nets.densenet import DenseNet121, prepare_frame
from cxr.nets.inception import FEATURES, Inception
from cxr.nets.tensors import load_strict
from cxr.semisyn.realism import lite, measure, score
from cxr.semisyn.realism.engine import run_shard
from cxr.semisyn.selection.select_configs import LOWER_IS_BETTER
from cxr.semisyn.settings import EXTRACTORS, METRICS
from cxr.workflow import settings
from cxr.workflow.plan_semisyn import RealismPlan
from cxr.workflow.settings import SettingsError, read
from fidelity_wheel import fidelity
from tiny_clip import write_clip

RNG = np.random.default_rng(7)
IMAGES = [cv2.resize(RNG.integers(0, 256, (30, 30)).astype(np.uint8), (512, 512)) for _ in range(3)]
PROMPTS = ["right effusion", "edema", "effusion"]


def randomised(net: torch.nn.Module) -> torch.nn.Module:
    """Give a net weights and statistics that let every layer matter, of a size that neither fades nor grows."""
    generator = torch.Generator().manual_seed(5)
    for name, value in net.state_dict().items():
        draw = torch.randn(value.shape, generator=generator) if value.is_floating_point() else None
        if name.endswith("running_var") or (value.dim() == 1 and name.endswith("weight")):
            value.copy_(draw.abs() / 2 + 0.5)
        elif name.endswith(("running_mean", "bias")):
            value.copy_(draw / 10)
        elif draw is not None:
            value.copy_(draw * (2 / max(1, value[0].numel())) ** 0.5)
    return net.eval()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, dict[str, str]]:
    """{engine: its files}, in the forms in which the workflow has them."""
    folder = tmp_path_factory.mktemp("extractors")
    save_file(randomised(Inception()).state_dict(), folder / "inception.safetensors")
    save_file(randomised(DenseNet121(18)).state_dict(), folder / "xrv.safetensors")
    write_clip(folder / "clip")
    return {
        "lite": {},
        "inception": {"weights": str(folder / "inception.safetensors")},
        "xrv": {"weights": str(folder / "xrv.safetensors")},
        "clip": {"folder": str(folder / "clip")},
    }


def test_the_engines_are_those_of_the_settings():
    assert engine_names("cxr.semisyn.realism") == tuple(sorted(EXTRACTORS))
    named = {
        name
        for engine in EXTRACTORS
        for name in __import__(f"cxr.semisyn.realism.{engine}", fromlist=["METRICS"]).METRICS.values()
    }
    assert named <= set(METRICS)
    assert named - {"clip"} <= set(LOWER_IS_BETTER)
    # only the features of FID's own net are called FID
    assert lite.METRICS == {"frechet": "frechet_lite", "kernel": "kernel_lite"}


@pytest.mark.parametrize(("engine", "size"), [("lite", 128), ("inception", FEATURES), ("xrv", 1024), ("clip", 8)])
def test_every_engine_writes_the_same_form(engine, size, files, tmp_path):
    plan = pl.DataFrame({"job_id": ["j0", "j1", "j2"], "prompt": PROMPTS})
    write_table(tmp_path / "plan.parquet", plan)
    for name, jobs in (("a.h5", [2]), ("b.h5", [0, 1])):
        with ShardWriter(tmp_path / name, pictures=("image",)) as writer:
            for number in jobs:
                writer.append(f"j{number}", image=IMAGES[number])
    out = tmp_path / "features.h5"
    run_shard(
        plan=str(tmp_path / "plan.parquet"), edited=[str(tmp_path / "a.h5"), str(tmp_path / "b.h5")], output=str(out),
        extractor=engine, engine_settings={}, attrs={"stage": "s"}, compute={"device": "cpu", "batch": 2},
        **files[engine],
    )  # fmt: skip
    with Shard(out) as shard:
        assert shard.ids == ["j0", "j1", "j2"]
        assert (shard.attrs["extractor"], len(shard.attrs["weights"])) == (engine, 32)
        rows = [shard.get("feature", name) for name in shard.ids]
        fits = [float(shard.get("similarity", name)) for name in shard.ids]
    assert {(row.shape, row.dtype.name) for row in rows} == {((size,), "float32")}
    assert all(np.isfinite(fits)) if engine == "clip" else all(np.isnan(fits))
    assert len({row.tobytes() for row in rows}) == 3
    # one image alone has the same bytes
    loaded = engine_module("cxr.semisyn.realism", engine).load(Setup({}, files[engine], "cpu", 5))
    alone = loaded.features(IMAGES[1:2], PROMPTS[1:2])
    assert alone.feature[0].astype(np.float32).tobytes() == rows[1].tobytes()


def test_inception_is_the_published_net(tmp_path):
    with fidelity() as module:
        module.load_state_dict_from_url = lambda *_, **__: {}

        class Untrained(module.FeatureExtractorInceptionV3):
            def load_state_dict(self, state: dict) -> None:
                """Keep the random weights: the published ones are not at hand."""

        theirs = randomised(Untrained("inception", ["2048"]))
        torch.save(theirs.state_dict(), tmp_path / "inception.pth")
        told = converter("inception")(tmp_path / "inception.pth", tmp_path / "inception.safetensors")
        assert (told["tensors"], told["values"]) == (470, 21_820_000)
        assert told["left_out"] == ["fc.bias", "fc.weight"]
        setup = Setup({}, {"weights": str(tmp_path / "inception.safetensors")}, "cpu")
        engine = engine_module("cxr.semisyn.realism", "inception").load(setup)
        for image in IMAGES[:2]:
            given = torch.from_numpy(image)[None, None].expand(1, 3, -1, -1)
            with torch.inference_mode():
                (wanted,) = theirs(given)
            np.testing.assert_allclose(engine.features([image], [""]).feature, wanted.numpy(), atol=1e-4)


def test_counters_of_the_training_are_left_out(tmp_path):
    """The two published copies of the file differ in them."""
    state = randomised(Inception()).state_dict()
    more = state | {
        "fc.weight": torch.ones(1008, FEATURES),
        "Mixed_5b.branch1x1.bn.num_batches_tracked": torch.tensor(0),
    }
    torch.save(more, tmp_path / "inception.pth")
    converter("inception")(tmp_path / "inception.pth", tmp_path / "inception.safetensors")
    net = Inception()
    load_strict(net, tmp_path / "inception.safetensors")
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())


def test_xrv_features_are_what_its_classifier_reads(files):
    net = DenseNet121(18)
    load_strict(net, files["xrv"]["weights"])
    engine = engine_module("cxr.semisyn.realism", "xrv").load(Setup({}, files["xrv"], "cpu"))
    found = torch.from_numpy(engine.features(IMAGES[:1], [""]).feature)
    with torch.inference_mode():
        torch.testing.assert_close(net.classifier(found), net.eval()(prepare_frame(IMAGES[0])))


def test_lite_features_are_the_mean_of_the_detectors_deepest_layer():
    path = RESOURCES / "boxes/lite.onnx"
    small = cv2.resize(IMAGES[0], (256, 256), interpolation=cv2.INTER_AREA).astype(np.float32)[None, None] / 255
    deepest = onnx.compute_layer(path, "/deep/deep.1/Relu_1_output_0", image=small)
    found = engine_module("cxr.semisyn.realism", "lite").load(Setup()).features(IMAGES[:1], [""]).feature
    np.testing.assert_allclose(found, deepest.mean(axis=(2, 3)), atol=1e-5)
    # an output of the file stays what it is
    np.testing.assert_array_equal(onnx.compute_layer(path, "logit", image=small), onnx.run_model(path, image=small)[0])
    with pytest.raises(UserError, match="has no layer 'elsewhere'"):
        onnx.compute_layer(path, "elsewhere", image=small)


def test_the_clip_score_is_transformers_own(files, tmp_path):
    model = write_clip(tmp_path / "clip")
    processor = CLIPProcessor.from_pretrained(tmp_path / "clip")
    engine = engine_module("cxr.semisyn.realism", "clip").load(Setup({}, files["clip"], "cpu"))
    found = engine.features(IMAGES, PROMPTS)
    for image, prompt, value in zip(IMAGES, PROMPTS, found.similarity, strict=True):
        shown = np.repeat(image[:, :, None], 3, axis=2)
        given = processor(text=[prompt], images=[shown], return_tensors="pt")
        with torch.inference_mode():
            wanted = model(**given).logits_per_image[0, 0] / model.logit_scale.exp()
        assert value == pytest.approx(float(wanted), abs=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found.feature, axis=1), 1, atol=1e-6)


def test_weights_that_are_not_the_pinned_ones_are_refused(files):
    weights = Path(files["clip"]["folder"], "model.safetensors")
    pinned = hashlib.sha256(weights.read_bytes()).hexdigest()
    engine_module("cxr.semisyn.realism", "clip").load(Setup({"sha256": pinned}, files["clip"], "cpu"))
    with pytest.raises(UserError, match=rf"has the SHA-256 {pinned}, not that of semisyn\.realism\.clip\.sha256"):
        engine_module("cxr.semisyn.realism", "clip").load(Setup({"sha256": "0" * 64}, files["clip"], "cpu"))


def test_a_folder_that_is_no_clip_model_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"semisyn\.realism\.clip\.model is .* which has no config\.json"):
        engine_module("cxr.semisyn.realism", "clip").load(Setup({}, {"folder": str(tmp_path)}, "cpu"))
    write_clip(tmp_path)
    save_file({"text_projection.weight": torch.zeros(8, 16)}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"semisyn\.realism\.clip\.model is .* whose weights lack"):
        engine_module("cxr.semisyn.realism", "clip").load(Setup({}, {"folder": str(tmp_path)}, "cpu"))


def test_the_kernel_distance_of_subsets_is_that_of_each(monkeypatch):
    ours, real = RNG.normal(size=(BLOCK + 30, 6)), RNG.normal(0.3, 1, (BLOCK + 7, 6))
    kept = RNG.random((5, len(ours))) < 0.6
    kept[0], kept[4] = True, False
    found = kid_of_subsets(ours, real, kept)
    for row, value in zip(kept[:4], found[:4], strict=True):
        assert value == pytest.approx(kid(ours[row], real), rel=1e-9)
    assert np.isnan(found[4])


def test_metrics_of_features_by_hand():
    jobs = pl.DataFrame({"job_id": ["a", "b", "c"], "finding": ["edema"] * 3})
    ours = {name: RNG.normal(size=2).astype(np.float32) for name in "abc"}
    real = {name: RNG.normal(size=2).astype(np.float32) for name in "xyzuv"}
    fits = {"a": np.float32(0.25), "b": np.float32(0.5), "c": np.float32(0.75)}
    names = {"frechet": "fid", "kernel": "kid", "similarity": "clip"}
    draws = np.array([[1, 1, 1], [2, 0, 1]], np.int32)
    told = score.EngineFeatures(names, ours, fits, real)
    found = score.score_features(told, jobs, pl.Series(["x", "y", "z", "u", "v"]), draws)
    assert set(found) == {"kid", "clip"}  # three images are too few for FID of two features
    np.testing.assert_allclose(found["clip"], [0.5, (2 * 0.25 + 0.75) / 3])
    stack = np.stack([*ours.values()]), np.stack([*real.values()])
    np.testing.assert_allclose(found["kid"], [kid(*stack), kid(stack[0][[0, 2]], stack[1])])
    assert set(score.score_features(told, jobs, pl.Series([], dtype=pl.String), draws)) == {"clip"}


def test_an_engine_that_needs_real_images_does_not_run_without(tmp_path):

    asked = {"features": ["lite", "inception", "clip"], "clip": {"model": str(tmp_path)}}
    plan = RealismPlan(read({"semisyn": {"realism": asked}}, []), ["00", "01"])
    assert set(plan.files) == set(plan.metrics) == {"clip"}
    assert plan.real == {}
    boxes = tmp_path / "boxes.json"
    boxes.write_text("{}")
    people = {"references": {"people": {"format": "coco", "path": str(boxes)}}}
    plan = RealismPlan(read({"semisyn": people | {"realism": asked | {"reference": "people"}}}, []), ["00"])
    assert set(plan.metrics) == {"clip", "inception", "lite"}
    folder = "results/semisyn/realism/00"
    assert plan.real == {f"real_{name}": [f"{folder}.{name}.features.h5"] for name in ("inception", "lite")}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"reference": "people"}, r"realism\.reference is 'people', but semisyn\.references has none"),
        ({"features": ["clip"]}, r"features has clip, but clip\.model is empty"),
        ({"features": ["lite", "lite"]}, r"features names 'lite' twice"),
    ],
)
def test_wrong_settings_are_told(wrong, message):
    with pytest.raises(SettingsError, match=message):
        settings.read({"semisyn": {"realism": wrong}}, [])


def test_real_boxes_are_measured_on_the_frame(tmp_path):
    """A bright square on the right lung, drawn in original pixels, which are two a frame pixel."""
    image = RNG.normal(90, 12, (512, 512))
    image[200:280, 120:200] += 30
    masks = np.zeros((3, 512, 512), bool)
    masks[0, 120:400, 80:220], masks[1, 120:400, 300:440], masks[2, 280:400, 200:320] = True, True, True
    names = ["boxed", "without organs", "healthy"]
    with ShardWriter(tmp_path / "frames.h5") as frames:
        for name in names:
            affine = np.array([[2.0, 0, 0], [0, 2.0, 0]])
            frames.append(name, image=image.clip(0, 255).astype(np.uint8), to_original=affine)
    with ShardWriter(tmp_path / "organs.h5", labels=("right lung", "left lung", "heart")) as organs:
        for name in ("boxed", "healthy"):
            organs.append(name, mask=masks)
    write_table(tmp_path / "images.parquet", pl.DataFrame({"image_id": names, "subject_id": ["p0", "p1", "p2"]}))
    rows = ["image_id,class_name,x_min,y_min,x_max,y_max,rad_id"]
    rows += ["boxed,Lung Opacity,240,400,400,560,R1", "boxed,Cardiomegaly,400,560,640,800,R1"]
    rows += ["without organs,Lung Opacity,240,400,400,560,R1", "elsewhere,Lung Opacity,1,1,9,9,R1"]
    (tmp_path / "boxes.csv").write_text("\n".join([*rows, ""]))
    told = {"name": "people", "format": "vindr", "path": str(tmp_path / "boxes.csv"), "image_id": "{stem}",
            "role": "test", "classes": {}}  # fmt: skip
    measure.run_reference(
        annotations=told["path"], images=str(tmp_path / "images.parquet"), frames=str(tmp_path / "frames.h5"),
        organs=str(tmp_path / "organs.h5"), output=str(tmp_path / "real.parquet"),
        reference=told, findings=["opacity", "cardiomegaly", "edema"],
    )  # fmt: skip
    table = read_table(tmp_path / "real.parquet")
    assert table.select("image_id", "finding", "subject_id").rows() == [
        ("boxed", "cardiomegaly", "p0"), ("boxed", "opacity", "p0"), ("without organs", "opacity", "p1"),
    ]  # fmt: skip
    assert table["contrast"].is_null().to_list() == [True, False, True]
    assert table["contrast"][1] == pytest.approx(30 / 13.5, rel=0.1)
    assert Path(tmp_path / "real.parquet").stat().st_size


def test_a_selection_by_metrics_that_nothing_gives_is_refused():
    told = {"semisyn": {"selection": {"metrics": ["fid", "c2st"]}}}
    with pytest.raises(UserError, match=r"metrics is fid, c2st, but semisyn.realism computes only ap1070"):
        RealismPlan(read(told, []), ["00"])
    told["semisyn"]["selection"]["metrics"].append("auroc")
    assert RealismPlan(read(told, []), ["00"]).real == {}
