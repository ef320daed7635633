"""The interface of the engines that answer questions. Each engine is a module of this package, such as ``vllm``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cxr.base.engines import Setup, engine_module
from cxr.vlm.collate import Collator, Encoded
from cxr.vlm.samples import Sample


@dataclass(frozen=True)
class AnswersOptions:
    """Settings for asking the model of one run.

    ``engine`` is transformers or vllm. ``convention`` is the format of box coordinates in prompts, "" for that of
    the run. ``history``: a later turn sees the model's earlier answers ("own") or the ground truth ("expected").
    """

    engine: str
    convention: str
    max_new_tokens: int
    max_length: int
    history: str
    dtype: str
    seed: int
    model: str = ""
    revision: str = ""


@dataclass(frozen=True)
class TurnRequest:
    """A turn to answer: its encoded prompt, its image (only vLLM uses it), and its number in the sample, from 0."""

    encoded: Encoded
    picture: object
    turn: int = 0


@dataclass(frozen=True)
class ModelAnswer:
    """A model's answer. ``tokens`` is its number of tokens. ``stop`` is "end", or "length" if it was cut off.

    ``failure`` is the reason of a missing answer, otherwise "". ``marks`` has a hidden state (H,) on the CPU for each
    [SEG] in the answer. A segmenting model makes a mask from it.
    """

    text: str
    tokens: int
    stop: str
    failure: str = ""
    marks: tuple = ()


@dataclass(frozen=True)
class Reply:
    """The answer to a turn, the format of its boxes (``convention``), and (width, height) of the model's image."""

    sample: Sample
    turn: int
    answer: ModelAnswer
    convention: str
    input_size: Sequence[int]

    def line(self) -> dict:
        """Return the reply as the dict of a JSON line."""
        answer = {name: getattr(self.answer, name) for name in ("text", "tokens", "stop", "failure")}
        coordinate_fields = {"convention": self.convention, "seen": list(self.input_size)}
        return {"sample_id": self.sample.sample_id, "turn": self.turn} | answer | coordinate_fields


class Answerer(Protocol):
    """A model that answers. ``at_once`` is the maximum number of turns per call, 0 for no limit."""

    at_once: int

    def answer(self, requests: Sequence[TurnRequest]) -> list[ModelAnswer]:
        """Return a greedily decoded answer to each request, in order. All requests are of different samples."""
        ...


def load_answerer(run: Path, base: str, options: AnswersOptions, setup: Setup, collator: Collator) -> Answerer:
    """Load the engine ``options.engine`` for a run. Raises UserError for an unknown engine or an unusable run."""
    return engine_module("cxr.vlm.answers", options.engine).load(run, base, options, setup, collator)
