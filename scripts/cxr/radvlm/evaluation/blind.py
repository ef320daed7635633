"""Answers without the image, for comparison with a model: a text-only baseline that knows the training lines.

A turn of a conversation gets an answer that the words of the question predict. For each box name in this answer, the
box is the mean training box of that name. Samples of other tasks get the commonest answer of their task and source.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cxr.radvlm.evaluation.answers import SampleAnswer
from cxr.radvlm.samples import CONVERSATION_TASKS, slot_names, write_slots

MOST_ANSWERS = 3000  # number of different answers that a text-only model can give, the commonest first
SMOOTHING = 0.1  # added to the numbers of a label's training questions with and without a word


class WordModel:
    """A naive Bayes model, which predicts a label from the words of a question, each counted once."""

    def __init__(self, samples: Iterable[tuple[str, str, int]]):
        """``samples``: (question, label, number of times) of the training questions."""
        totals: Counter = Counter()
        uses: dict[str, Counter] = defaultdict(Counter)
        for question, label, count in samples:
            totals[label] += count
            for word in _words(question):
                uses[word][label] += count
        self.labels = sorted(totals)
        total = np.array([totals[label] for label in self.labels], float)
        self._prior = np.log(total)
        self._word_scores = {
            word: np.log(np.array([by_label[label] for label in self.labels]) + SMOOTHING)
            - np.log(total + 2 * SMOOTHING)
            for word, by_label in uses.items()
        }

    def predict(self, question: str) -> str:
        """Return the likeliest label. Words that no training question has are ignored."""
        scores = [self._word_scores[word] for word in _words(question) if word in self._word_scores]
        return self.labels[int(np.argmax(sum(scores, self._prior)))]


@dataclass
class Turns:
    """The training turns and boxes of one task and source."""

    counts: Counter = field(default_factory=Counter)  # {(question, answer): number of turns}
    boxes: dict[str, list] = field(default_factory=lambda: defaultdict(list))  # {name: training boxes}

    def add(self, line: Mapping) -> None:
        self.counts.update((turn["question"], turn["answer"]) for turn in line["turns"])
        for name, boxes in line["boxes"].items():
            self.boxes[name] += boxes

    @cached_property
    def _answers(self) -> list[str]:
        totals: Counter = Counter()
        for (_, answer), count in self.counts.items():
            totals[answer] += count
        return sorted(totals, key=lambda text: (-totals[text], text))

    @property
    def commonest(self) -> str:
        """The commonest answer without boxes, "" if there is none."""
        return next((text for text in self._answers if not slot_names(text)), "")

    @cached_property
    def _samples(self) -> list[tuple[str, str, int]]:
        common = set(self._answers[:MOST_ANSWERS])
        return [(question, answer, count) for (question, answer), count in self.counts.items() if answer in common]

    @cached_property
    def _first_words(self) -> WordModel:
        return WordModel((question, _first_word(answer), count) for question, answer, count in self._samples)

    @cached_property
    def _by_first_word(self) -> dict[str, WordModel]:
        samples = defaultdict(list)
        for sample in self._samples:
            samples[_first_word(sample[1])].append(sample)
        return {word: WordModel(word_samples) for word, word_samples in samples.items()}

    def answer(self, question: str) -> str:
        """Return the likeliest training answer, with mean training boxes for ``<box:name>``, or "" without turns.

        The answer's first word is predicted first, so that all wordings of a yes (or a no) count together.
        """
        if not self.counts:
            return ""
        text = self._by_first_word[self._first_words.predict(question)].predict(question)
        return write_slots(text, {name: [np.mean(self.boxes[name], axis=0)] for name in slot_names(text)})


def _words(text: str) -> list[str]:
    return sorted(set(re.findall(r"\w+", text.lower())))


def _first_word(text: str) -> str:
    return next(iter(re.findall(r"\w+", text.lower())), "")


class BlindAnswers:
    """Answers to test lines without their images."""

    def __init__(self, train: Iterable[Mapping]):
        self._turns: dict[tuple[str, str], Turns] = defaultdict(Turns)
        for line in train:
            self._turns[line["task"], line["source"]].add(line)

    def answer(self, line: Mapping) -> SampleAnswer:
        """Return the answers to all turns of a line. They are "" if no training line has its task and source."""
        turns = self._turns[line["task"], line["source"]]
        if line["task"] in CONVERSATION_TASKS:
            return SampleAnswer(tuple(turns.answer(turn["question"]) for turn in line["turns"]))
        return SampleAnswer((turns.commonest,) * len(line["turns"]))
