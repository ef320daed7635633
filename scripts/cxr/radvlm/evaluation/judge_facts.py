"""The judge ``facts`` compares the claims of generated and expected answers round by round, without a model.

Claims are boxes, and findings with polarity, side and zone. Correctness is the fraction of generated claims that are
expected. Completeness is the fraction of expected claims that are generated. Contradiction is the fraction of expected
findings whose opposite is generated. The worth of a round is the harmonic mean of correctness and completeness, times
(1 − contradiction). The score is 10 times the mean worth. If neither answer has claims, their words are compared.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from cxr.geometry.boxes import box_iou
from cxr.radvlm.evaluation.claims import AnswerClaims, read_answer
from cxr.radvlm.evaluation.judge import MAX_SCORE, Item, Judge, Judgement, Round
from cxr.radvlm.evaluation.measures import HIT_IOU

RESOURCE_FILES = ("radvlm/evaluation.yaml", "lexicon")
OPPOSITE = {"positive": "negative", "negative": "positive", "yes": "no", "no": "yes"}


def load(_model_options: Mapping, _execution: Mapping) -> Judge:
    read_claims = lru_cache(maxsize=100_000)(read_answer)

    def score(qa_round: Round) -> dict[str, float]:
        claims = (read_claims(qa_round.question, text) for text in (qa_round.expected, qa_round.generated))
        return score_round(qa_round, *claims)

    def judge(items: Sequence[Item]) -> list[Judgement]:
        rounds_by_item = [tuple(map(score, item.rounds)) for item in items]
        worths = (float(np.mean([scores["worth"] for scores in rounds])) for rounds in rounds_by_item)
        return [Judgement(MAX_SCORE * worth, rounds) for worth, rounds in zip(worths, rounds_by_item, strict=True)]

    return judge


def score_round(qa_round: Round, expected: AnswerClaims, generated: AnswerClaims) -> dict[str, float]:
    """Return {correctness, completeness, contradiction, worth} of a round, each from 0 to 1."""
    expected_claims, generated_claims = Counter(expected.items), Counter(generated.items)
    num_matched, num_missed, num_extra = _match_boxes(qa_round.expected_boxes, qa_round.generated_boxes)
    if not (expected_claims or generated_claims or num_matched or num_missed or num_extra):
        expected_claims, generated_claims = Counter(expected.words), Counter(generated.words)
    shared = (expected_claims & generated_claims).total() + num_matched
    num_generated = generated_claims.total() + num_matched + num_extra
    num_expected = expected_claims.total() + num_matched + num_missed
    correct, complete = (shared / total if total else 1.0 for total in (num_generated, num_expected))
    contradiction = _contradicted_fraction(expected, generated)
    f1 = 2 * correct * complete / (correct + complete) if correct + complete else 0.0
    worth = f1 * (1 - contradiction)
    return {"correctness": correct, "completeness": complete, "contradiction": contradiction, "worth": worth}


def _contradicted_fraction(expected: AnswerClaims, generated: AnswerClaims) -> float:
    if not expected.findings:
        return float(bool(expected.sign) and generated.sign == OPPOSITE[expected.sign])
    differing = expected.findings - generated.findings
    denied = [entity for entity, which in differing if (entity, OPPOSITE[which]) in generated.findings]
    return len(denied) / len(expected.findings)


def _match_boxes(expected: np.ndarray, generated: np.ndarray) -> tuple[int, int, int]:
    if not len(expected) or not len(generated):
        return 0, len(expected), len(generated)
    table = box_iou(np.asarray(generated, np.float64), np.asarray(expected, np.float64))
    right, free = 0, np.ones(len(expected), bool)
    for row in table:
        best = int(np.where(free, row, -1.0).argmax())
        if free[best] and row[best] >= HIT_IOU:
            free[best], right = False, right + 1
    return right, len(expected) - right, len(generated) - right
