"""The interface of engines that answer, and loading one by name. A further engine is a further module."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cxr.base.engines import engine_module
from cxr.vlm.collate import Encoded


@dataclass(frozen=True)
class AnswersOptions:
    """Settings of asking one run.

    engine: transformers, vllm or table; convention: of the prompt's coordinates, "" for the run's own; history: own or
    expected, the earlier answers that a turn is asked after; own: the engine's settings.
    """

    engine: str
    convention: str
    max_new_tokens: int
    max_length: int
    history: str
    dtype: str
    seed: int
    own: dict
    model: str = ""
    revision: str = ""


@dataclass(frozen=True)
class Execution:
    """How an engine runs; no answer depends on it, as far as the arithmetic of a batch allows."""

    device: str = "auto"
    asked: int | None = None
    batch: int = 8
    gpu_memory: float = 0.9


@dataclass(frozen=True)
class Asked:
    """A turn to answer: its encoded prompt, and what vLLM needs instead: ids with one token a picture, the picture.

    turn: its number in the sample, from 0.
    """

    encoded: Encoded
    short: list[int]
    picture: object
    turn: int = 0


@dataclass(frozen=True)
class Said:
    """An answer. stop: end or length; failure: "" or a reason; marks: of a model that tells masks, the hidden state
    (H,) that foretold each [SEG] of the text, on the CPU.
    """

    text: str
    tokens: int
    stop: str
    failure: str = ""
    marks: tuple = ()

    def told(self) -> dict:
        """Return what a line tells of it."""
        return {"text": self.text, "tokens": self.tokens, "stop": self.stop, "failure": self.failure}


class Answerer(Protocol):
    """A model that answers. at_once: turns that it wants together at most, 0 for as many as there are."""

    at_once: int

    def answer(self, requests: Sequence[Asked]) -> list[Said]:
        """Return the answers, in order; greedy, the same for any batch as far as the arithmetic allows.

        They are turns of at most ``at_once`` samples; the next call has later turns of some of them, or other samples.
        """
        ...


def load_answerer(name: str, run: Path, base: str, options: AnswersOptions, execution: Execution) -> Answerer:
    """Return the engine ``name`` for a run. Raises UserError for an unknown engine, or a run that cannot be used."""
    return engine_module("cxr.vlm.answers", name).load(run, base, options, execution)
