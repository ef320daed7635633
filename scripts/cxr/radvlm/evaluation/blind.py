"""Answers that look at nothing: for each task the commonest training answer, and the mean box of a name."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

_SLOT = re.compile(r"<box:([^<>]+)>")


def shown(answer: str, boxes: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Return an answer with its slots written as fractions with two decimals, for a reader."""

    def boxes_of(match: re.Match) -> str:
        texts = [f"[{', '.join(f'{value:.2f}' for value in box)}]" for box in boxes.get(match[1], ())]
        return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1]))) if texts else ""

    return _SLOT.sub(boxes_of, answer)


def slots(answer: str) -> list[str]:
    """Return the names of the boxes that an answer gives, each once, in order."""
    return list(dict.fromkeys(_SLOT.findall(answer)))


def commonest(train: Iterable[Mapping]) -> dict[tuple[str, str], str]:
    """Return {(task, source): the commonest answer of its training lines}, any turn's; of equals the first by text.

    Answers with boxes do not count: the mean box stands for them.
    """
    counts: dict[tuple[str, str], Counter] = defaultdict(Counter)
    for line in train:
        turn_answers = (turn["answer"] for turn in line["turns"])
        counts[line["task"], line["source"]].update(answer for answer in turn_answers if not slots(answer))
    return {key: min(counter, key=lambda text: (-counter[text], text)) for key, counter in counts.items() if counter}
