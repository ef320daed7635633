"""The benchmark of the large nets: true sizes, arithmetic by hand, a tiny net through the same function, refusals."""

import sys

import pytest
import torch
import yaml
from torch.utils.flop_counter import FlopCounterMode

from conftest import ROOT
from cxr.base.errors import UserError
from cxr.diffusion.folders import RADEDIT_TOKENS
from cxr.diffusion.schedule import select_steps
from cxr.workflow.params import stage_options
from cxr.workflow.settings import read
from tiny_yolo import STRIDES, plan, tiny_plan

sys.path.insert(0, str(ROOT / "benchmarks"))
import engines
import engines_nets as nets
import engines_run as run
from cxr.imaging.boxes import scaled_yolov4
from cxr.imaging.boxes.scaled_yolov4.network import Network


def count(state: dict[str, torch.Tensor]) -> tuple[int, int]:
    return len(state), sum(value.numel() for value in state.values())


# true sizes, on no memory


def test_sizes_that_are_known():
    with torch.device("meta"):
        assert count(nets.hybridgnet().state_dict()) == (107, 17_511_090)
        assert count(dict(nets.p6().named_parameters()))[1] == 126_846_096
        assert count(dict(Network(plan(80), STRIDES).named_parameters()))[1] == pytest.approx(127.6e6, abs=5e4)  # paper


def test_sizes_of_the_diffusion_model():
    with torch.device("meta"):
        assert count(dict(nets.unet().named_parameters()))[1] == 859_520_964  # Stable Diffusion 1.5's
        parts = {"vae": nets.vae(), "bert": nets.bert()}
    values = {name: count(dict(part.named_parameters()))[1] for name, part in parts.items()}
    # published files in bytes: four a value, and a header that names the tensors
    assert 0 < 334_643_268 - 4 * values["vae"] < 2**15
    pooler, projection = 768 * 768 + 768, 768 * 128 + 128 + 2 * 128 + 128 * 128 + 128
    assert 0 < 440_909_232 - 4 * (values["bert"] + pooler + projection) < 2**15


def operations(call) -> float:
    """TFLOP of a call on the device meta."""
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops() / 1e12


def test_the_counted_operations_are_those_of_the_nets():
    """A step of RadEdit has three rows; 60 of its 200 steps are skipped."""
    told = yaml.safe_load((ROOT / "resources/costs.yaml").read_text(encoding="utf-8"))["counted"]["nets"]
    with torch.device("meta"):
        unet, vae = nets.unet(), nets.vae()
        row = torch.empty(1, 4, 64, 64)
        states = torch.empty(1, RADEDIT_TOKENS, nets.TEXT_WIDTH)
        step = operations(lambda: unet(row, torch.tensor(1.0), encoder_hidden_states=states))
        both = operations(lambda: vae.encode(torch.empty(1, 3, 512, 512))) + operations(lambda: vae.decode(row))
        organs = operations(lambda: nets.hybridgnet()(torch.empty(1, 1, 1024, 1024)))
    own = stage_options(read({"anomaly": {"engine": "radedit"}}))["anomaly"]["radedit"]
    steps = len(select_steps([0.5] * 1000, own["steps"], own["skip_ratio"]))
    assert told["anomaly"]["bfloat16"] == pytest.approx(3 * steps * step, rel=1e-3)
    assert told["anomaly"]["float32"] == pytest.approx(both, rel=1e-3)
    assert told["organs"]["float32"] == pytest.approx(organs, rel=0.01)


# arithmetic


def test_seconds_an_image():
    done, now = [], iter([10.0, 24.0])
    assert run.seconds_an_image(done.append, list("abcdefg"), 3, lambda: next(now)) == 2.0
    assert done == [["a", "b", "c"], ["d", "e", "f"], ["g"]]


def test_the_time_of_all_parts_counts_what_is_fixed_once():
    assert run.whole(seconds=9.0, fixed=3.0, parts=2, of=140) == 3.0 + 140 * 3.0
    assert run.whole(seconds=8.0, fixed=0.0, parts=1, of=5) == 40.0


class Editor:
    """An engine with steps that notes what it is asked, and a clock that goes on by a second for each step."""

    batch = 2

    def __init__(self):
        self.steps, self.asked, self.now = list(range(140)), [], 0.0

    def edit_batch(self, images, organs, names):
        self.asked.append((len(images), len(self.steps)))
        self.now += len(images) * (4 + len(self.steps))


def test_an_engine_with_steps(monkeypatch):
    editor = Editor()
    monkeypatch.setattr(run, "load", lambda *_: editor)
    monkeypatch.setattr(run, "clock_of", lambda _: lambda: editor.now)
    row = run.measure("anomaly", "radedit", {"radedit": {"dtype": "bfloat16"}}, {}, "cpu", batch=2, images=3, parts=5)
    assert editor.asked == [(2, 0), (1, 0), (2, 5), (1, 5)]
    told = {"batch": 2, "images": 3, "parts": 5, "of_parts": 140, "s_per_part": 1.0, "s_besides": 4.0}
    assert row | told | {"s_per_image": 144.0, "images_per_s": 1 / 144, "dtype": "bfloat16"} == row


def test_an_engine_that_takes_one_at_a_time_has_no_batched_row(monkeypatch):
    monkeypatch.setattr(run, "load", lambda *_: object())
    assert run.measure("organs", "hybridgnet", {}, {}, "cpu", batch=2, images=1) == {}


# a tiny net of the true class through making and measuring


def test_a_tiny_ensemble(tmp_path, monkeypatch):
    monkeypatch.setattr(scaled_yolov4, "IMAGE_SIZE", 128)
    options = stage_options(read({"boxes": {"engine": "scaled_yolov4"}}))["boxes"]
    torch.manual_seed(0)
    files = nets.write_scaled_yolov4(tmp_path, options, run.frame().image, Network(tiny_plan(), STRIDES), tiny_plan())
    assert nets.values(files) == 5 * count(Network(tiny_plan(), STRIDES).state_dict())[1]
    engine = run.load("boxes", "scaled_yolov4", options, files, "cpu", 2, None)
    assert len(engine.folds) == 5
    assert engine.detect_batch([run.frame().image])[0].confidence.size  # suppression has work
    row = run.measure("boxes", "scaled_yolov4", options, files, "cpu", batch=2, images=2, parts=2)
    assert (row["parts"], row["of_parts"], row["batch"], row["images"]) == (2, 5, 2, 2)
    assert row["s_per_image"] == pytest.approx(5 * row["s_per_part"])
    assert row["device"].startswith("CPU, ")
    assert row["peak_gb"] > 0.05  # this process holds torch
    assert set(row) | {"stage", "engine", "values_million"} == set(engines.COLUMNS)


# refusals, each in a sentence


def test_a_package_that_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(run.PACKAGES, "cxas", ("no_such_package",))
    with pytest.raises(UserError, match=r"no_such_package is not installed for .*: name the engine's interpreter"):
        run.make("anatomy", "cxas", {}, str(tmp_path), "cpu")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["--engines", "hybridgnet,lite"], "'lite' is no engine with a large net: choose among hybridgnet, "),
        (["--python", "yolo=python"], "'yolo' is no engine with a large net"),
        (["--images", "0"], "argument --images: invalid positive value: '0'"),
    ],
)
def test_a_wrong_command_line(given, fault, capsys):
    with pytest.raises(SystemExit):
        engines.arguments(given)
    assert fault in capsys.readouterr().err.splitlines()[-1]


def test_an_interpreter_that_does_not_run():
    with pytest.raises(engines.Refused, match=r"^/no/python does not run \(No such file or directory\): correct"):
        engines.child("/no/python", task="make")
