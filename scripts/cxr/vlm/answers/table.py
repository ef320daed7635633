"""The engine table: answers made elsewhere, JSON lines of {sample_id, text}, with turn, or failure instead of text."""

from collections.abc import Sequence
from pathlib import Path

from cxr.base.errors import UserError
from cxr.base.tables import read_lines
from cxr.vlm.answers.engine import AnswersOptions, Asked, Execution, Said


class Table:
    """Answers by sample and turn."""

    def __init__(self, path: str, known: dict[tuple[str, int], Said]):
        self.path, self.known = path, known
        self.turns: dict[str, int] = {}

    def answer(self, asked: Sequence[Asked]) -> list[Said]:
        """Return the answers, in order; one that the file lacks is a failure ``not_given``."""
        found = []
        for one in asked:
            name = one.encoded.sample_id
            turn = self.turns.get(name, 0)
            self.turns[name] = turn + 1
            found.append(self.known.get((name, turn), Said("", 0, "", "not_given")))
        return found

    def unknown(self, samples: set[str]) -> list[str]:
        """Return the samples of the file that nobody asked for."""
        return sorted({name for name, _ in self.known} - samples)


def load(run: Path, base: str, options: AnswersOptions, how: Execution) -> Table:
    """Return the engine for the file ``base``. Raises UserError for an answer that is there twice or has no name."""
    del run, options, how
    known: dict[tuple[str, int], Said] = {}
    for number, line in enumerate(read_lines(base), 1):
        name, turn = line.get("sample_id", line.get("query_id")), line.get("turn", 0)
        text, failure = line.get("text", line.get("answer", "")), line.get("failure", "")
        if not isinstance(name, str) or not isinstance(text, str) or not isinstance(turn, int):
            raise UserError(f"{base}, line {number}: give sample_id and text, as texts, and turn as a number")
        if (name, turn) in known:
            raise UserError(f"{base}, line {number}: the sample {name!r} is there twice: remove one")
        known[name, turn] = Said(text, line.get("tokens", 0), line.get("stop", "end"), failure or "")
    return Table(str(base), known)
