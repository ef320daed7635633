"""Answers of a model joined with the lines that were asked; what is missing, doubled or unknown is counted."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cxr.radvlm.evaluation.grammars import WHOLE_IMAGE, AnswerBoxes, load_grammar

ANSWER, FILTERED, ORIGINAL = "answer", "filtered", "original"
"""Texts of a report's sample: a model's, the single-image text, and the report's own section."""
NO_PREDICTION, DUPLICATE, UNKNOWN = "no_prediction", "duplicate", "unknown"


@dataclass(frozen=True)
class SampleAnswer:
    """The answers to a sample's turns. convention, seen: grammar of the boxes, and the (width, height) that pixels are
    relative to; crop: the part of the picture that the model saw; failure: "" or why there is no full answer.
    """

    texts: tuple[str, ...] = ()
    convention: str = ""
    seen: tuple[int, int] = (1, 1)
    failure: str = ""
    crop: tuple[float, float, float, float] = WHOLE_IMAGE

    @property
    def text(self) -> str:
        """The answer to a single turn."""
        return self.texts[0] if self.texts else ""

    def boxes(self, turn: int = 0) -> AnswerBoxes:
        """Return the boxes of the answer to a turn, read by the declared grammar."""
        return load_grammar(self.convention or "unit", self.crop)(self.texts[turn], self.seen)


def join_answers(lines: Sequence[Mapping], answers: Iterable[Mapping]) -> tuple[dict[str, SampleAnswer], Counter]:
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
        name: _join_turns([answers_by_turn.get((name, turn), []) for turn in range(number)])
        for name, number in turns.items()
    }
    counts.update(answer.failure for answer in answer_by_sample.values() if answer.failure)
    return answer_by_sample, counts


def _join_turns(turns: Sequence[Sequence[Mapping]]) -> SampleAnswer:
    for turn_answers in turns:
        if not turn_answers:
            return SampleAnswer(failure=NO_PREDICTION)
        if len(turn_answers) > 1:
            return SampleAnswer(failure=DUPLICATE)
        if turn_answers[0].get("failure"):
            return SampleAnswer(failure=str(turn_answers[0]["failure"]))
    first = turns[0][0]
    texts = tuple(str(turn_answers[0].get("text", "")) for turn_answers in turns)
    return SampleAnswer(texts, first.get("convention", ""), tuple(first.get("seen") or (1, 1)),
                    crop=tuple(first.get("crop") or WHOLE_IMAGE))  # fmt: skip


_SLOT = re.compile(r"<box:([^<>]+)>")


def write_slots(answer: str, boxes: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Return an answer with its slots written as fractions with two decimals, for a reader."""

    def boxes_of(match: re.Match) -> str:
        texts = [f"[{', '.join(f'{value:.2f}' for value in box)}]" for box in boxes.get(match[1], ())]
        return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1]))) if texts else ""

    return _SLOT.sub(boxes_of, answer)


def slot_names(answer: str) -> list[str]:
    """Return the names of the boxes that an answer gives, each once, in order."""
    return list(dict.fromkeys(_SLOT.findall(answer)))


def find_commonest_answers(train: Iterable[Mapping]) -> dict[tuple[str, str], str]:
    """Return {(task, source): the commonest answer of its training lines}, any turn's; of equals the first by text.

    Answers with boxes do not count: the mean box stands for them.
    """
    counts: dict[tuple[str, str], Counter] = defaultdict(Counter)
    for line in train:
        turn_answers = (turn["answer"] for turn in line["turns"])
        counts[line["task"], line["source"]].update(answer for answer in turn_answers if not slot_names(answer))
    return {key: min(counter, key=lambda text: (-counter[text], text)) for key, counter in counts.items() if counter}
