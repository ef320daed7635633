"""Broken devices, machines and programs end a job and never exclude an image; an image's own fault excludes its row.

The tests raise the libraries' own error classes, or errors with the libraries' own messages, inside the real engines.
"""

import errno
import logging
import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as ort
from torch import distributed

from cxr.base import faults, workers
from cxr.base.engines import Setup
from cxr.base.errors import StoreError, UserError, out_of_memory
from cxr.base.faults import Broken
from cxr.base.jobs import progress, start_logging
from cxr.base.ledger import Ledger
from cxr.base.tables import read_table
from cxr.imaging.organs import segment_organs as organs
from cxr.imaging.organs.hybridgnet.net import HybridGNet
from cxr.imaging.phantom.chest import draw_chest
from cxr.nets import devices, onnx
from cxr.nets.microbatch import fit_micro_batch
from cxr.workflow.settings import Settings, SettingsError, read
from organs_runs import OPTIONS, write_frames
from tiny_hybridgnet import coarse_ovals, publish, told

COMPUTE = Settings().compute.as_dict() | {"device": "cpu"}
ASSERT = (
    "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in https://docs.nvidia.com/cuda/ for more "
    "information.\nCUDA kernel errors might be asynchronously reported at some other API call"
)
NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"
OLD_DRIVER = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"
LIBRARY = "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file"
DEVICE = {
    "sticky": torch.AcceleratorError(ASSERT),
    "no kernel": torch.AcceleratorError(NO_KERNEL),
    "no kernel, before torch 2.8": RuntimeError(NO_KERNEL),
    "ECC": torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered"),
    "lost": RuntimeError("CUDA error: unspecified launch failure"),
    "cuDNN": RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    "cuDNN missing": RuntimeError(LIBRARY),
    "cuBLAS": RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, ...)`"),
    "old driver": RuntimeError(OLD_DRIVER),
    "no driver": RuntimeError("Found no NVIDIA driver on your system."),
    "wrong torch": AssertionError("Torch not compiled with CUDA enabled"),
    "no operator": NotImplementedError("Could not run 'torchvision::nms' with arguments from the 'CUDA' backend."),
    "NCCL": distributed.DistBackendError("NCCL error in: ProcessGroupNCCL.cpp:1275, remote process exited"),
    "NCCL's clock": distributed.DistBackendError("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)"),
    "onnxruntime": ort.Fail("[ONNXRuntimeError] : 1 : FAIL : CUDA failure 100: no CUDA-capable device is detected"),
    "onnxruntime's cuDNN": ort.RuntimeException("CUDNN failure 4: CUDNN_STATUS_INTERNAL_ERROR ; GPU=0 ; hostname=n"),
}
OTHER = {
    "the program": ModuleNotFoundError("No module named 'pylibjpeg'"),
    "the machine": OSError(errno.ESTALE, "Stale file handle"),
}
OWN = [
    ValueError("a picture of another shape"), ZeroDivisionError("division by zero"), RuntimeError("shape mismatch"),
    ort.InvalidArgument("Got invalid dimensions for input: image"), IndexError("tuple index out of range"),
    PermissionError(errno.EACCES, "Permission denied"), NotImplementedError("a palette of four channels"),
]  # fmt: skip


@pytest.mark.parametrize("name", DEVICE)
def test_an_error_of_the_device_is_known(name):
    assert faults.broken_part(DEVICE[name]) == "the device"
    assert not out_of_memory(DEVICE[name])


def test_errors_of_the_program_and_the_machine_are_known():
    assert {what: faults.broken_part(error) for what, error in OTHER.items()} == {what: what for what in OTHER}
    assert [faults.broken_part(error) for error in OWN] == [""] * len(OWN)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        torch.AcceleratorError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to"),
        ort.RuntimeException("Failed to allocate memory for requested buffer of size 4096"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_a_lack_of_memory_is_known_whoever_tells_it(error):
    """It is recognized before a broken device, because a smaller batch or a larger machine solves it."""
    assert out_of_memory(error)
    rows = [(number,) for number in range(4)]

    def work(part: list[tuple]) -> list[tuple]:
        if len(part) > 2:
            raise error
        return [(number, None) for (number,) in part]

    assert workers.process_fitting_batches(work, rows, 4, "anomaly") == ([(number, None) for number in range(4)], 2)


# through the stages


@pytest.fixture(scope="module")
def ovals_net(tmp_path_factory) -> str:
    return publish(tmp_path_factory.mktemp("told"), told(coarse_ovals()))


@pytest.fixture(scope="module")
def frames(tmp_path_factory) -> str:
    picture = np.round(draw_chest(np.random.default_rng([5, 0]), (512, 512)).image * 255).astype(np.uint8)
    return write_frames(tmp_path_factory.mktemp("frames") / "00.h5", {f"i{n:02}": picture for n in range(12)})


def run_organs(tmp_path: Path, frames: str, engine: str, **given) -> Path:
    """Run the stage on a shard; return its ledger."""
    options = organs.OrgansSettings(**{**OPTIONS.__dict__, "engine": engine})
    outputs = {"output": tmp_path / "00.h5", "excluded": tmp_path / "00.excluded.parquet"}
    given = {"threads": 2, "compute": COMPUTE} | given
    organs.run_shard(frames=frames, options=options, attrs={}, **outputs, **given)
    return outputs["excluded"]


@pytest.mark.parametrize("name", [name for name in DEVICE if "onnx" not in name])
def test_a_broken_gpu_ends_the_job_of_a_net_and_writes_nothing(tmp_path, frames, ovals_net, monkeypatch, name):
    def forward(self, picture):
        raise DEVICE[name]

    monkeypatch.setattr(HybridGNet, "forward", forward)
    with pytest.raises(Broken, match=r"^organs: the device is broken, not an image \(") as ended:
        run_organs(tmp_path, frames, "hybridgnet", weights=ovals_net)
    assert ended.value.__cause__ is DEVICE[name]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["onnxruntime", "onnxruntime's cuDNN"])
def test_an_error_of_onnxruntime_ends_the_job_too(tmp_path, frames, monkeypatch, name):
    plain, seen = onnxruntime.InferenceSession.run, []

    def run(self, *arguments):
        seen.append(1)
        if len(seen) == 4:  # in the middle of the shard
            raise DEVICE[name]
        return plain(self, *arguments)

    monkeypatch.setattr(onnxruntime.InferenceSession, "run", run)
    with pytest.raises(Broken, match=r"^organs: the device is broken"):
        run_organs(tmp_path, frames, "lite")
    assert not list(tmp_path.iterdir())


def failing(indices: set[int], error: Exception):
    """Return an engine's net that fails on some images, counted in the order in which one thread processes them."""
    plain, seen = onnx.run_model, []

    def run(path, **inputs):
        seen.append(1)
        if len(seen) - 1 in indices:
            raise error
        return plain(path, **inputs)

    return run


@pytest.mark.parametrize(
    ("indices", "told"),
    [
        ({2, 3, 4, 5, 6}, "the same error on 5 images in a row (ValueError: picture # is odd)"),
        ({0, 2, 4, 6, 8}, "5 of 9 images failed (ValueError: picture # is odd)"),
        ({0, 2, 4, 6}, ""),
        ({7, 8}, ""),
    ],
)
def test_what_is_no_images_own_ends_the_job_by_the_settings(tmp_path, indices, told):
    def work(rows: list[tuple]):
        ((number,),) = rows
        if number in indices:
            raise ValueError(f"picture {number} is odd")
        return [(number, None)]

    book, names = Ledger("boxes"), [str(number) for number in range(9)]
    limits = {"failures_in_row": 5, "failed_share": 0.3}
    rows = workers.process_rows(book, names, lambda name: (int(name),), work, None, 2, limits)
    if not told:
        assert len(list(rows)) == 9 - len(indices)
        assert {row["reason"] for row in book.excluded} == {"engine_failure"}
        return
    with pytest.raises(Broken) as ended:
        list(rows)
    first = min(indices) if "row" in told else max(indices)
    assert f"boxes: {told}" in str(ended.value)
    assert str(ended.value.__cause__) == f"picture {first} is odd"


@pytest.mark.parametrize(("total", "ends"), [(1, False), (2, True), (4, True)])
def test_a_small_shard_on_which_all_fails_ends_too(total, ends):
    def work(rows: list[tuple]):
        raise ValueError("each time")

    names = [str(number) for number in range(total)]
    limits = {"failures_in_row": 5, "failed_share": 0.1}
    rows = workers.process_rows(Ledger("boxes"), names, lambda name: (name,), work, None, 1, limits)
    if not ends:
        assert list(rows) == []
        return
    with pytest.raises(Broken, match=f"{total} of {total} images failed"):
        list(rows)


def test_one_bad_image_is_one_row_that_says_what_failed(tmp_path, frames, monkeypatch, caplog):
    plain, seen = onnxruntime.InferenceSession.run, []

    def run(self, *arguments):
        seen.append(1)
        if len(seen) == 7:  # two nets process each image
            raise ValueError("a detail that is for the log")
        return plain(self, *arguments)

    monkeypatch.setattr(onnxruntime.InferenceSession, "run", run)
    caplog.set_level(logging.DEBUG, "cxr")
    rows = read_table(run_organs(tmp_path, frames, "lite", threads=1)).filter(reason="engine_failure")
    assert rows.select("image_id", "detail").rows() == [
        (
            "i03",
            "the engine stopped with ValueError in cxr.nets.onnx.run_model; the first such error is in the job's log",
        )
    ]
    assert "a detail that is for the log" in caplog.text
    assert "Traceback" in caplog.text


def test_a_damaged_result_in_the_work_is_no_images_failure():
    def work(rows: list[tuple]):
        raise StoreError("results/organs/00.h5 is damaged: delete it and run again")

    with pytest.raises(StoreError):
        list(workers.process_rows(Ledger("boxes"), ["1"], lambda name: (name,), work, None, 2))


def test_the_log_holds_the_first_traceback_and_the_screen_one_sentence(tmp_path, capsys):
    import sys

    hooks = sys.excepthook
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        start_logging(str(tmp_path / "job.log"))
        try:
            try:
                raise DEVICE["sticky"]
            except RuntimeError as error:
                raise faults.job_failure("anomaly", error) from error
        except Broken as error:
            sys.excepthook(Broken, error, error.__traceback__)
    finally:
        sys.excepthook = hooks
        root.handlers[:], root.level = handlers, level
    told, log = capsys.readouterr().err, (tmp_path / "job.log").read_text()
    assert re.fullmatch(r"anomaly: the device is broken, not an image \(AcceleratorError: CUDA error: .*\n", told)
    assert "Traceback (most recent call last)" in log
    assert "device-side assert triggered" in log
    assert log.count("Traceback") == 1


def test_a_slow_item_is_told_of_before_it_ends(caplog):
    import threading

    caplog.set_level(logging.INFO, "cxr")
    told = threading.Event()

    class Heard(logging.Handler):
        def emit(self, record):
            if "so far" in record.getMessage():
                told.set()

    def items():
        yield 1
        assert told.wait(30), "nothing was told while the second item was made"
        yield 2

    handler = Heard()
    logging.getLogger("cxr").addHandler(handler)
    try:
        assert list(progress(items(), 2, "anomaly", every_s=0.05)) == [1, 2]
    finally:
        logging.getLogger("cxr").removeHandler(handler)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "anomaly: 0 of 2, started"
    assert re.fullmatch(r"anomaly: item 2 of 2, \d+ s so far", next(line for line in lines if "so far" in line))
    assert re.fullmatch(r"anomaly: 2 of 2 in \d+\.\d s", lines[-1])


# the GPUs that were requested


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a function that simulates a machine: GPUs that torch sees, the driver's version, and a batch system."""

    def make(gpus: int, driver: str = "", batch: str = "") -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(devices, "_check_gpu", lambda: None)
        file = tmp_path / "version"
        file.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Tue Nov  5 2024\n")
        monkeypatch.setattr(devices, "DRIVER_VERSION_PATH", file if driver else tmp_path / "none")
        for name in devices.BATCH_SYSTEMS:
            monkeypatch.delenv(name, raising=False)
        if batch:
            monkeypatch.setenv(batch, "17")

    return make


@pytest.mark.parametrize(
    ("device_setting", "num_requested", "gpus", "driver", "batch", "expected"),
    [
        ("auto", 1, 1, "550.54.14", "SLURM_JOB_ID", "cuda"),
        ("auto", 1, 4, "550.54.14", "", "cuda"),
        ("auto", None, 1, "550.54.14", "", "cuda"),  # no job: scripts/tools/predict.py
        ("auto", None, 0, "", "", "cpu"),
        ("auto", 0, 4, "550.54.14", "SLURM_JOB_ID", "cpu"),  # the GPUs may belong to another job
        ("cpu", 8, 0, "", "SLURM_JOB_ID", "cpu"),
        ("auto", 1, 0, "", "SLURM_JOB_ID", "requested 1 GPU, but it sees no GPU"),
        ("auto", 1, 0, "", "PBS_JOBID", "requested 1 GPU, but it sees no GPU"),
        ("auto", 1, 0, "470.57.02", "", "the driver is 470.57.02"),  # the card is there, torch cannot use it
        ("auto", 8, 0, "", "", "requested 8 GPUs, but it sees no GPU"),
        ("auto", 8, 4, "550.54.14", "SLURM_JOB_ID", "requested 8 GPUs, but it sees 4"),
        ("auto", 2, 1, "550.54.14", "", "set compute.gpus to 1 or 0, or compute.device to cpu"),
        ("cuda", None, 0, "", "", "compute.device is 'cuda', but this job sees no GPU"),
        ("cuda", 1, 0, "", "", "requested 1 GPU, but it sees no GPU"),
    ],
)
def test_a_gpu_that_was_asked_for_is_used_or_missed(
    machine, device_setting, num_requested, gpus, driver, batch, expected
):
    machine(gpus, driver, batch)
    if expected in ("cpu", "cuda"):
        assert devices.select_device(device_setting, num_requested).type == expected
        return
    with pytest.raises(UserError) as refused:
        devices.select_device(device_setting, num_requested)
    words = str(refused.value)
    assert expected in words
    assert f"torch {torch.__version__} was built " in words
    assert "compute.gpus to" in words
    assert "compute.device to cpu" in words
    assert ("the driver is" in words) == bool(driver)


@pytest.mark.slow
def test_a_laptop_computes_on_its_cpu_and_says_so(machine, caplog, tmp_path, frames, ovals_net):
    machine(0)
    run_organs(tmp_path, frames, "hybridgnet", weights=ovals_net, compute=COMPUTE | {"device": "auto", "asked": 1})
    (line,) = [record.getMessage() for record in caplog.records if "no GPU found" in record.getMessage()]
    assert "running on the CPU, which is slow; set compute.gpus to 0 to silence this warning" in line
    caplog.clear()
    run_organs(tmp_path, frames, "hybridgnet", weights=ovals_net, compute=COMPUTE | {"device": "auto", "asked": 0})
    assert "no GPU found" not in caplog.text


def test_a_gpu_that_cannot_add_is_broken(machine, monkeypatch):
    tried = devices._check_gpu
    machine(1, "550.54.14", "SLURM_JOB_ID")
    monkeypatch.setattr(devices, "_check_gpu", tried)
    # this torch has no CUDA, so torch itself refuses to move the first number there
    if torch.version.cuda:
        pytest.skip("this torch may have a GPU that can add")
    with pytest.raises(Broken, match=r"the GPU of .* fails \(AssertionError: Torch not compiled with CUDA enabled"):
        devices.select_device("auto", 1)


def test_engines_are_told_how_many_were_asked_for():
    assert Setup.of_job({}, {"device": "auto", "batch": 2, "asked": 1}).requested_gpus == 1
    assert Setup.of_job({}, {"device": "auto"}).requested_gpus is None


# GPUs that share a batch


def even(batch: int, micro: int, ranks: int) -> bool:
    return batch % (micro * ranks) == 0


@pytest.mark.parametrize("halves", [False, True])
def test_gpus_share_a_batch_in_the_largest_parts_that_come_out_even(halves):
    for batch in (1, 4, 6, 16, 255, 256):
        for micro in (1, 2, 4, 16, 128):
            for ranks in range(1, 9):
                fitting = [n for n in range(1, micro + 1) if even(batch, n, ranks) and not (halves and n % 2)]
                assert fit_micro_batch(batch, micro, ranks, halves) == max(fitting, default=0), (batch, micro, ranks)


@pytest.mark.parametrize(("gpus", "micro"), [(1, 128), (2, 128), (4, 64), (8, 32)])
def test_the_papers_batch_is_shared_by_eight_gpus(gpus, micro):
    settings = read({"compute": {"gpus": gpus}, "training": {"engine": "rosalia"}})
    recipe = settings.training.rosalia.shared(gpus)
    assert (recipe.batch, recipe.micro_batch) == (256, micro)
    assert recipe.micro_batches_per_step(gpus) == 256 // (gpus * micro)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"compute": {"gpus": 3}}, "compute.gpus is 3, which cannot share training.rosalia.batch 256 evenly: set gpus "
         "to one of 1, 2, or batch to a multiple of 3"),
        ({"compute": {"gpus": 7}}, "set gpus to one of 1, 2, 4, or batch to a multiple of 7"),
        ({"compute": {"gpus": 4}, "training": {"rosalia": {"balance": "exact", "batch": 4, "micro_batch": 4}}},
         "compute.gpus is 4, which cannot share training.rosalia.batch 4 evenly, each with as many positives as "
         "negatives: set gpus to one of 1, 2, or batch to a multiple of 8"),
        ({"compute": {"device": "cuda", "gpus": 0}}, "compute.device is 'cuda', but compute.gpus is 0, so no job"),
    ],
)  # fmt: skip
def test_gpus_that_cannot_be_used_are_refused_at_the_parse(settings, told):
    with pytest.raises(SettingsError, match=re.escape(told)):
        read(settings | {"training": {"engine": "rosalia"} | settings.get("training", {})})


@pytest.mark.parametrize(
    "training", [{"engine": "lite"}, {"engine": "rosalia", "rosalia": {"runner": "plain"}}, {"engine": "rosalia"}]
)
def test_only_a_training_over_several_gpus_shares_them(training):
    gpus = 2 if training == {"engine": "rosalia"} else 7
    assert read({"compute": {"gpus": gpus}, "training": training}).compute.gpus == gpus
