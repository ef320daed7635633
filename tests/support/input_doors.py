"""The doors through which a user's inputs come in, tried as a whole: image files, language-model servers."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import cv2
import numpy as np

from cohort_runs import COLUMNS, run_cohort, write_csv
from conftest import ROOT
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.jobs import settings_arguments
from cxr.base.tables import read_table
from cxr.imaging.cohort import make_cohort
from cxr.imaging.frames.make_frames import run_shard
from cxr.llm.asking import Answer, Question, ask
from cxr.llm.client import connect
from cxr.llm.options import Execution, ModelOptions
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings
from http_server import Quiet, running

T = TypeVar("T")


def result_or_sentence(function: Callable[[], T]) -> tuple[T | None, str]:
    """Return a function's result and "", or None and the sentence with which a user's mistake stops the run."""
    try:
        return function(), ""
    except UserError as error:
        return None, str(error)


# ----------------------------------------------------------------------------------------------- images


@dataclass(frozen=True)
class Outcome:
    """What the stages cohort and frames make of an image file: its frame, or the reason and its detail."""

    reason: str = ""
    detail: str = ""
    frame: np.ndarray | None = field(default=None, repr=False)
    to_original: np.ndarray | None = field(default=None, repr=False)

    def largest_difference(self, other: "Outcome") -> int:
        """Return the largest difference of two frames, grey levels. Raises AssertionError without a frame."""
        return int(self._differences(other).max())

    def mean_difference(self, other: "Outcome") -> float:
        """Return the mean difference of two frames, grey levels. Raises AssertionError without a frame."""
        return float(self._differences(other).mean())

    def _differences(self, other: "Outcome") -> np.ndarray:
        assert self.frame is not None, (self.reason, self.detail)
        assert other.frame is not None, (other.reason, other.detail)
        return np.abs(self.frame.astype(int) - other.frame.astype(int))


def frames_of(folder: Path, files: Mapping[str, bytes], window: str = "minmax", **cohort: object) -> dict[str, Outcome]:
    """Return {file name: outcome} of image files, each a study of its own; pictures are told to be PA.

    Files of a name in ``files`` whose content is None must lie in ``folder`` already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, (name, data) in enumerate(files.items()):
        if data is not None:
            (folder / name).write_bytes(data)
        view = "" if name.endswith(".dcm") else "PA"
        rows.append((f"p{number}", f"s{number}", f"i{number}", name, "", view))
    manifest = write_csv(folder / "manifest.csv", (*COLUMNS, "view"), rows)
    with patch.object(make_cohort, "MIN_SIDE", 16):
        result = run_cohort(folder, manifest=manifest, shards=1, **cohort)
    options = settings_arguments(run_shard, stage_options(Settings())["frames"] | {"window": window})
    ledger = folder / "frames.excluded.parquet"
    run_shard(
        cohort=str(result.paths["00"]), output=str(folder / "frames.h5"), excluded=str(ledger),
        corrected=str(folder / "frames.corrected.parquet"), **options,
        attrs={}, threads=1,
    )  # fmt: skip
    outcomes = {image: Outcome(reason, result.details[image]) for image, reason in result.reasons.items()}
    for image, reason, detail in read_table(ledger).select("image_id", "reason", "detail").iter_rows():
        outcomes[image] = Outcome(reason, detail)
    with Shard(folder / "frames.h5") as shard:
        for image in shard.ids:
            frame = Outcome(frame=shard.get("image", image), to_original=shard.get("to_original", image))
            outcomes[image] = frame
    return {name: outcomes[f"i{number}"] for number, name in enumerate(files)}


def frame_and_right_one(
    folder: Path, data: bytes, right_grey: np.ndarray, **options: object
) -> tuple[Outcome, Outcome]:
    """Return the outcome of a DICOM file and that of a PNG with the grey levels it should have."""
    outcomes = frames_of(folder, {"tried.dcm": data, "right.png": png_of(right_grey)}, **options)
    return outcomes["tried.dcm"], outcomes["right.png"]


def png_of(pixels: np.ndarray) -> bytes:
    return cv2.imencode(".png", pixels)[1].tobytes()


# ---------------------------------------------------------------------------------------------- servers

MODEL = ModelOptions(
    key="some.stage.llm", transport="server", model="m", revision="", context=4096, max_tokens=512, dtype="auto",
    temperature=0.0, retries=1, retry_temperature=0.5, seed=7,
)  # fmt: skip
SCHEMA = {
    "type": "object", "properties": {"presence": {"type": "string"}}, "required": ["presence"],
    "additionalProperties": False,
}  # fmt: skip
GOOD = {"presence": "positive"}


@dataclass(frozen=True)
class Reply:
    """One answer of a server: its status, and its body as bytes or as what JSON makes of it."""

    body: object
    status: int = 200
    kind: str = "application/json"

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def completion(content: object, **message: object) -> dict:
    """Return the body of a whole chat completion with one choice."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content} | message}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


@contextmanager
def replying(replies: Mapping[str, Reply]) -> Iterator[tuple[str, list[str]]]:
    """Serve a model that answers a prompt by the first of ``replies`` whose name it holds, any other rightly.

    Yields the address and the prompts that came.
    """
    prompts: list[str] = []

    class Handler(Quiet):
        def do_GET(self) -> None:
            self._send(
                Reply({"object": "list", "data": [{"id": "m", "object": "model", "created": 0, "owned_by": ""}]})
            )

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = request["messages"][-1]["content"]
            prompts.append(prompt)
            fitting = (reply for name, reply in replies.items() if name in prompt)
            self._send(next(fitting, Reply(completion(json.dumps(GOOD)))))

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(reply.data)))
            self.end_headers()
            self.wfile.write(reply.data)

    with running(Handler) as address:
        yield f"{address}/v1", prompts


def ask_server(*names: str, schema: dict | None = SCHEMA, **replies: Reply) -> tuple[list[Answer], list[str]]:
    """Ask one question of each name; return the answers in order, and the prompts that came.

    A question whose name is in ``replies`` gets that reply each time, any other a right answer.
    """
    with replying(replies) as (address, prompts):
        execution = Execution(
            gpus=0, gpu_memory=0.9, server=address, requests=1, timeout_s=5,
            server_key="some.stage.llm.execution.server",
        )  # fmt: skip
        generate = connect(replace(MODEL), execution)
        questions = [Question([{"role": "user", "content": name}], schema) for name in names]
        return ask(questions, generate, MODEL), prompts


# --------------------------------------------------------------------------------------------- programs


def run_python(program: str, *arguments: str, timeout_s: float = 60, **environment: str) -> subprocess.CompletedProcess:
    """Run a program text in a new interpreter that finds the project; kill it after ``timeout_s``."""
    command = [sys.executable, "-c", program, *arguments]
    paths = [str(ROOT / folder) for folder in ("scripts", "scripts/tools", "tests", "tests/support")]
    environment = os.environ | {"PYTHONPATH": ":".join(paths), "OMP_NUM_THREADS": "1"} | environment
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
