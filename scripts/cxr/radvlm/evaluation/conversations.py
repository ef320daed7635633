"""Judges a model's conversations by comparison with the expected answers, and checks the judge."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, write_lines, write_rows
from cxr.radvlm.evaluation.answers import NO_BOXES, SampleAnswer, join_answers, turn_boxes
from cxr.radvlm.evaluation.blind import BlindAnswers
from cxr.radvlm.evaluation.claims import read_answer
from cxr.radvlm.evaluation.columns import CHECK
from cxr.radvlm.evaluation.judge import Item, Judge, Round, load_judge
from cxr.radvlm.samples import CONVERSATION_TASKS, write_slots

EXCHANGED_PERCENTAGES = (0, 25, 50, 75, 100)  # percentages of exchanged answers
MIN_EXPECTED_SCORE, MAX_EXCHANGED_SCORE = 9.5, 4.0
"""Required mean scores: minimum for expected answers, maximum for answers of a study with other findings."""


def find_partners(items: Sequence[Item]) -> dict[str, Item]:
    """Return {name of a conversation: its partner, the next in hash order that affirms none of its findings}."""
    ordered_items = sorted(items, key=lambda item: (stable_hash("judge_check", item.name), item.name))
    claims = {item.name: [read_answer(each.question, each.expected) for each in item.rounds] for item in ordered_items}
    findings_by_name = {
        name: {entity for answer in answers for entity, presence in answer.findings if presence == "positive"}
        for name, answers in claims.items()
    }
    partner_by_name = {}
    for place, item in enumerate(ordered_items):
        findings = findings_by_name[item.name]
        for candidate in (*ordered_items[place + 1 :], *ordered_items[:place]):
            if findings_by_name[candidate.name] != findings and findings.isdisjoint(findings_by_name[candidate.name]):
                partner_by_name[item.name] = candidate
                break
    return partner_by_name


def exchange_answers(item: Item, partner: Item, percentage: int) -> Item:
    """Return a conversation with expected answers, but with the partner's answers in a percentage of rounds.

    A hash orders the rounds, so that a higher percentage includes the rounds of a lower one.
    """
    order = sorted(range(len(item.rounds)), key=lambda place: stable_hash("judge_check", item.name, place))
    taken = set(order[: round(len(order) * percentage / 100)])
    rounds = []
    for place, qa_round in enumerate(item.rounds):
        answering = partner.rounds[place % len(partner.rounds)] if place in taken else qa_round
        rounds.append(replace(qa_round, generated=answering.expected, generated_boxes=answering.expected_boxes))
    return replace(item, rounds=tuple(rounds))


def check_judge(items: Sequence[Item], judge: Judge) -> Iterator[dict]:
    """Yield a row of CHECK for each check of the judge. Unscored conversations count as 0. Checks with answers
    of a partner (:func:`find_partners`) fail if no conversation has a partner."""
    pairs = find_partners(items)
    mixed = [item for item in items if item.name in pairs]
    exchanged = {
        percentage: [exchange_answers(item, pairs[item.name], percentage) for item in mixed]
        for percentage in EXCHANGED_PERCENTAGES
    }

    def scores(asked_items: Sequence[Item]) -> list[float | None]:
        return [judgement.score for judgement in judge(asked_items)]

    def mean_score(asked_items: Sequence[Item]) -> float:
        return float(np.mean([score or 0.0 for score in scores(asked_items)])) if asked_items else float("nan")

    means = [mean_score(mixed_items) for mixed_items in exchanged.values()]
    expected_mean = mean_score([exchange_answers(item, item, 0) for item in items])
    is_right, is_low = expected_mean >= MIN_EXPECTED_SCORE, means[-1] <= MAX_EXCHANGED_SCORE
    yield _row("expected answers", expected_mean, f">= {MIN_EXPECTED_SCORE}", len(items), is_right)
    target = f"<= {MAX_EXCHANGED_SCORE}"
    yield _row("answers of a study with other findings", means[-1], target, len(mixed), is_low)
    for number, (percentage, mean) in enumerate(zip(EXCHANGED_PERCENTAGES, means, strict=True)):
        target = f"below that of {EXCHANGED_PERCENTAGES[number - 1]} %" if number else ""
        passed = bool(mixed) and (not number or mean < means[number - 1])
        yield _row(f"{percentage} % exchanged", mean, target, len(mixed), passed)
    renamed = [replace(item, name=f"other {place}") for place, item in enumerate(exchanged[0])]
    for check, changed_scores, percentage in (
        ("scores in another order", scores(exchanged[50][::-1])[::-1], 50),
        ("scores under other names", scores(renamed), 0),
    ):
        is_same = changed_scores == scores(exchanged[percentage])
        yield _row(check, float(is_same), "the same", len(mixed), is_same and bool(mixed))


def _row(check: str, value: float, target: str, conversations: int, passed: bool) -> dict:
    row = (check, None if np.isnan(value) else value, target, conversations, bool(passed))
    return dict(zip(CHECK, row, strict=True))


TEST, EXCHANGED, BLIND = "test", "exchanged", "blind"  # judged answers; exchanged: about other patients' images
JUDGED_FIELDS = ("answers", "sample_id", "score", "problem", "rounds", "raw", "judge")
CHECKED_CONVERSATIONS = 200  # number of conversations, the first in the file, on which the judge is checked


def to_item(line: Mapping, answer: SampleAnswer | None) -> Item:
    """Return a line and its answer as a conversation to judge. A missing or failed answer gives empty texts."""
    rounds = []
    for turn, qa_pair in enumerate(line["turns"]):
        question, expected = (write_slots(qa_pair[part], line["boxes"]) for part in ("question", "answer"))
        has_answer = answer is not None and not answer.failure
        generated, boxes = (answer.texts[turn], answer.boxes(turn).boxes) if has_answer else ("", NO_BOXES.boxes)
        rounds.append(Round(question, expected, generated, turn_boxes(line, turn), boxes))
    return Item(line["sample_id"], tuple(rounds), tuple(line.get("labels") or ()))


def read_conversations(path: str) -> list[Mapping]:
    """Return the lines of a file that are conversations."""
    return [line for line in read_lines(path) if line["task"] in CONVERSATION_TASKS]


def run_judge(
    *, lines: str, train: str, answers: str, judged: str, judge: str, model_options: Mapping, execution: Mapping,
    exchanged_lines: Sequence[str] = (), exchanged_answers: Sequence[str] = (), code: str = "",
) -> None:  # fmt: skip
    """Judge answers to ``lines``, answers about other patients' images (exchanged), and answers without an image.
    ``train``: training lines, from which the answers without an image come. Samples without an answer are skipped."""
    judge_items = load_judge(judge, model_options, _with_answer_folder(execution, judged, code))
    conversations = read_conversations(lines)
    blind_answers = BlindAnswers(line for line in read_lines(train) if line["task"] in CONVERSATION_TASKS)
    answer_sets = [(TEST, conversations, join_answers(conversations, read_lines(answers))[0])]
    for lines_path, answers_path in zip(exchanged_lines, exchanged_answers, strict=True):
        exchanged = read_conversations(lines_path)
        answer_sets.append((EXCHANGED, exchanged, join_answers(exchanged, read_lines(answers_path))[0]))
    blind = {line["sample_id"]: blind_answers.answer(line) for line in conversations}
    answer_sets.append((BLIND, conversations, blind))
    rows = []
    for name, set_lines, answer_by_sample in answer_sets:
        answered_lines = [line for line in set_lines if not answer_by_sample[line["sample_id"]].failure]
        judgements = judge_items([to_item(line, answer_by_sample[line["sample_id"]]) for line in answered_lines])
        for line, judgement in zip(answered_lines, judgements, strict=True):
            row = {"answers": name, "sample_id": line["sample_id"]} | vars(judgement) | {"judge": judge}
            rows.append({key: row[key] for key in JUDGED_FIELDS})
    write_lines(judged, rows)


def _with_answer_folder(execution: Mapping, output: str, code: str) -> dict:
    path = Path(output)
    return dict(execution) | {"answers": str(path.parent / "answers" / path.stem), "code": code}


def run_check(
    *, lines: str, checked: str, judge: str, model_options: Mapping, execution: Mapping, code: str = ""
) -> None:
    """Check the judge on the first conversations of ``lines``. Without conversations, the table is empty."""
    items = [to_item(line, None) for line in read_conversations(lines)[:CHECKED_CONVERSATIONS]]
    judge_items = load_judge(judge, model_options, _with_answer_folder(execution, checked, code))
    write_rows(checked, check_judge(items, judge_items) if items else (), CHECK)
