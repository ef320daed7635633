"""The interface of answering engines, which are found by module name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cxr.base.engines import Setup, engine_module
from cxr.vlm.collate import Encoded


@dataclass(frozen=True)
class AnswersOptions:
    """Settings of asking one run.

    engine: transformers, vllm or table; convention: of the prompt's coordinates, "" for the run's own; history: which
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
    """A turn to answer. encoded: its prompt; short, picture: ids with one token per image, and the image (for vLLM);
    turn: its number in the sample, from 0.
    """

    encoded: Encoded
    short: list[int]
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

    def as_fields(self) -> dict:
        """Return the fields of an answer's JSON line."""
        return {"text": self.text, "tokens": self.tokens, "stop": self.stop, "failure": self.failure}


class Answerer(Protocol):
    """A model that answers. at_once: maximum turns per call, 0 for no limit."""

    at_once: int

    def answer(self, requests: Sequence[TurnRequest]) -> list[ModelAnswer]:
        """Return greedy answers to one turn of each of at most ``at_once`` samples, in order."""
        ...


def load_answerer(name: str, run: Path, base: str, options: AnswersOptions, setup: Setup) -> Answerer:
    """Return the engine ``name`` for a run. Raises UserError for an unknown engine or an unusable run."""
    return engine_module("cxr.vlm.answers", name).load(run, base, options, setup)
