"""Join the answers of a model with the samples; and blind answers, which use neither image nor model."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cxr.radvlm.evaluation.grammars import WHOLE_IMAGE, AnswerBoxes, load_grammar

ANSWER, FILTERED, ORIGINAL = "answer", "filtered", "original"
"""Texts of a report sample: the model's answer, the filtered report, and the original section."""
NO_PREDICTION, DUPLICATE, UNKNOWN = "no_prediction", "duplicate", "unknown"


@dataclass(frozen=True)
class SampleAnswer:
    """The answers to a sample's turns. convention: grammar of the boxes; seen: (width, height) for boxes in pixels;
    crop: the part of the image that the model saw; failure: "" or why an answer is missing.
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
        """Return the boxes in the answer to a turn, parsed by the declared grammar."""
        return load_grammar(self.convention or "unit", self.crop)(self.texts[turn], self.seen)


def join_answers(lines: Sequence[Mapping], answers: Iterable[Mapping]) -> tuple[dict[str, SampleAnswer], Counter]:
    """Return {sample_id: answer} for every line, and the counts of failures and of unknown answers.

    A sample fails as a whole if any turn has no answer, two answers or a failure; the first such turn gives the reason.
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
    """Replace slots by boxes as fractions with two decimals."""

    def boxes_of(match: re.Match) -> str:
        texts = [f"[{', '.join(f'{value:.2f}' for value in box)}]" for box in boxes.get(match[1], ())]
        return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1]))) if texts else ""

    return _SLOT.sub(boxes_of, answer)


def slot_names(answer: str) -> list[str]:
    """Return the slot names in an answer, each once, in order."""
    return list(dict.fromkeys(_SLOT.findall(answer)))


def find_commonest_answers(train: Iterable[Mapping]) -> dict[tuple[str, str], str]:
    """Return {(task, source): most common training answer of any turn}; ties go to the first in text order.

    Answers with boxes are ignored, because the mean box stands for them.
    """
    counts: dict[tuple[str, str], Counter] = defaultdict(Counter)
    for line in train:
        turn_answers = (turn["answer"] for turn in line["turns"])
        counts[line["task"], line["source"]].update(answer for answer in turn_answers if not slot_names(answer))
    return {key: min(counter, key=lambda text: (-counter[text], text)) for key, counter in counts.items() if counter}
