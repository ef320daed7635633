"""Answers of a model joined with the lines that were asked; what is missing, doubled or unknown is counted."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cxr.radvlm.evaluation.grammars import WHOLE, Found, grammar_of

ANSWER, FILTERED, ORIGINAL = "answer", "filtered", "original"
"""Texts of a report's sample: a model's, the single-image text, and the report's own section."""
NO_PREDICTION, DUPLICATE, UNKNOWN = "no_prediction", "duplicate", "unknown"


@dataclass(frozen=True)
class Answered:
    """The answers to a sample's turns. convention, seen: grammar of the boxes, and the (width, height) that pixels are
    relative to; crop: the part of the picture that the model saw; failure: "" or why there is no full answer.
    """

    texts: tuple[str, ...] = ()
    convention: str = ""
    seen: tuple[int, int] = (1, 1)
    failure: str = ""
    crop: tuple[float, float, float, float] = WHOLE

    @property
    def text(self) -> str:
        """The answer to a single turn."""
        return self.texts[0] if self.texts else ""

    def boxes(self, turn: int = 0) -> Found:
        """Return the boxes of the answer to a turn, read by the declared grammar."""
        return grammar_of(self.convention or "unit", self.crop)(self.texts[turn], self.seen)


def joined(lines: Sequence[Mapping], answers: Iterable[Mapping]) -> tuple[dict[str, Answered], Counter]:
    """Return {sample_id: its answer} of every line, and the counts of what failed and of unknown answers.

    A sample fails as a whole: where a turn has no answer, two, or a failure, its reason is that of the first such turn.
    """
    turns = {line["sample_id"]: len(line["turns"]) for line in lines}
    answers_by_turn: dict[tuple[str, int], list[Mapping]] = {}
    counts: Counter = Counter()
    for answer in answers:
        key = answer["sample_id"], int(answer.get("turn", 0))
        if answer["sample_id"] not in turns or not 0 <= key[1] < turns[answer["sample_id"]]:
            counts[UNKNOWN] += 1
        else:
            answers_by_turn.setdefault(key, []).append(answer)
    answer_by_sample = {
        name: _answer([answers_by_turn.get((name, turn), []) for turn in range(number)])
        for name, number in turns.items()
    }
    counts.update(answer.failure for answer in answer_by_sample.values() if answer.failure)
    return answer_by_sample, counts


def _answer(turns: Sequence[Sequence[Mapping]]) -> Answered:
    for turn_answers in turns:
        if not turn_answers:
            return Answered(failure=NO_PREDICTION)
        if len(turn_answers) > 1:
            return Answered(failure=DUPLICATE)
        if turn_answers[0].get("failure"):
            return Answered(failure=str(turn_answers[0]["failure"]))
    first = turns[0][0]
    texts = tuple(str(turn_answers[0].get("text", "")) for turn_answers in turns)
    return Answered(texts, first.get("convention", ""), tuple(first.get("seen") or (1, 1)),
                    crop=tuple(first.get("crop") or WHOLE))  # fmt: skip
