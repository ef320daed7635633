"""Select the wording of an instruction: its plain text, a random one of it and its paraphrases, or a persona's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from cxr.base.errors import UserError
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines

NO_WORDING = "no_wording"
"""Fault of a pair whose instruction has no wording of the persona."""
FIELDS = ("instruction", "persona", "wordings")


class Wording(Protocol):
    """Selects the text that a pair is asked with. ``chance``: the pair's random number in [0, 1)."""

    def text(self, line: Mapping, chance: float) -> str: ...


class PlainWording:
    """The plain instruction of the dataset."""

    def text(self, line: Mapping, chance: float) -> str:
        """Return the pair's instruction."""
        return line["instruction"]


class RandomWording:
    """The instruction or one of its paraphrases, with equal probability."""

    def __init__(self, path: str | Path):
        """``path``: the wordings of the paraphrase stage."""
        self.wordings_by_instruction: dict[str, list[str]] = {}
        for line in _read_wordings(path):
            self.wordings_by_instruction.setdefault(line["instruction"], []).extend(line["wordings"])

    def texts(self, instruction: str) -> list[str]:
        """Return all wordings of an instruction, the plain one first."""
        return [instruction, *self.wordings_by_instruction.get(instruction, [])]

    def text(self, line: Mapping, chance: float) -> str:
        """Return the wording selected by ``chance``; 0 selects the plain text."""
        texts = self.texts(line["instruction"])
        return texts[int(chance * len(texts))]


class PersonaWording:
    """A wording of one persona, chosen by (seed, pair, persona)."""

    def __init__(self, path: str | Path, persona: str, seed: int):
        """``path``: the wordings of the paraphrase stage."""
        self.persona, self.seed = persona, seed
        self.wordings_by_instruction = {
            line["instruction"]: line["wordings"] for line in _read_wordings(path) if line["persona"] == persona
        }
        if not self.wordings_by_instruction:
            raise UserError(f"{path} holds no wording of the persona {persona!r}: run snakemake paraphrase again")

    def text(self, line: Mapping, chance: float) -> str:
        """Return the pair's wording. Raises UserError (``NO_WORDING``) if its instruction has none."""
        texts = self.wordings_by_instruction.get(line["instruction"])
        if not texts:
            raise UserError(NO_WORDING)
        return texts[stable_hash(self.seed, "wording", line["pair_id"], self.persona) % len(texts)]


def _read_wordings(path: str | Path):
    for line in read_lines(path):
        if any(name not in line for name in FIELDS):
            raise UserError(f"{path} holds no wordings of instructions: run snakemake paraphrase again")
        yield line
