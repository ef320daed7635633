"""The interface of answering engines, which are found by module name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cxr.base.engines import Setup, engine_module
from cxr.vlm.collate import Collator, Encoded
from cxr.vlm.samples import Sample


@dataclass(frozen=True)
class AnswersOptions:
    """Settings of asking one run.

    engine: transformers or vllm; convention: of the prompt's coordinates, "" for the run's own; history: which
    earlier answers a later turn sees: the model's own or the expected ones.
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
    """A turn to answer. encoded: its prompt; picture: the image (for vLLM); turn: its number in the sample, from 0."""

    encoded: Encoded
    picture: object
    turn: int = 0


@dataclass(frozen=True)
class ModelAnswer:
    """A model's answer. stop: end or length; failure: a reason, "" if it succeeded; marks: for each [SEG] of a
    segmenting model, the hidden state (H,) that predicted it, on the CPU.
    """

    text: str
    tokens: int
    stop: str
    failure: str = ""
    marks: tuple = ()


@dataclass(frozen=True)
class Reply:
    """The answer to a turn. convention: of its boxes; seen: (width, height) of the image as the model sees it."""

    sample: Sample
    turn: int
    answer: ModelAnswer
    convention: str
    seen: Sequence[int]

    def line(self) -> dict:
        """Return the JSON line of the reply."""
        answer = {name: getattr(self.answer, name) for name in ("text", "tokens", "stop", "failure")}
        coordinate_fields = {"convention": self.convention, "seen": list(self.seen)}
        return {"sample_id": self.sample.sample_id, "turn": self.turn} | answer | coordinate_fields


class Answerer(Protocol):
    """A model that answers. at_once: maximum turns per call, 0 for no limit."""

    at_once: int

    def answer(self, requests: Sequence[TurnRequest]) -> list[ModelAnswer]:
        """Return a greedy answer to each request, in order; ``requests``: at most ``at_once``, of different samples."""
        ...


def load_answerer(run: Path, base: str, options: AnswersOptions, setup: Setup, collator: Collator) -> Answerer:
    """Return the engine for a run with its collator. Raises UserError for an unknown engine or an unusable run."""
    return engine_module("cxr.vlm.answers", options.engine).load(run, base, options, setup, collator)
