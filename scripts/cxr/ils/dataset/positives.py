"""Make the positive pairs from the units of the masks stage (ils.md section 7).

A unit is a basic or global instruction with its mask, before any text. The masks stage has already joined and merged
units, and dropped those that the report contradicts. This module gives each unit its text, and gives each basic unit of
pneumonia, atelectasis and edema its lesion-inference twin.
"""

from collections.abc import Iterable

from cxr.ils import templates
from cxr.ils.dataset import pairs
from cxr.ils.dataset.pairs import Pair


def make_positives(units: Iterable[dict], *, one_answer: str) -> tuple[list[Pair], list[dict]]:
    """Return the positive pairs of one image in the order of its units, twins after their basics, and the drops.

    ``one_answer`` strict: if one instruction would get different answers, all its pairs are dropped. Instructions with
    the same answer must already be one unit. A drop is a dict of type, target and reason.
    """
    positive_pairs: list[Pair] = []
    dropped: list[dict] = []
    for unit in units:
        if unit["dropped"] is not None:
            dropped.append(_make_drop(unit["kind"], unit["target"], unit["dropped"]))
            continue
        positive_pairs.append(_make_pair(unit, unit["kind"], unit["mask_id"]))
        if unit["inference_dropped"] is not None:
            dropped.append(_make_drop(templates.INFERENCE, unit["target"], unit["inference_dropped"]))
        elif unit["inference"]:
            positive_pairs.append(_make_pair(unit, templates.INFERENCE, unit["mask_id"]))
    if one_answer == "strict":
        positive_pairs, conflicts = _drop_conflicts(positive_pairs)
        dropped += conflicts
    return positive_pairs, dropped


def _make_pair(unit: dict, kind: str, mask_id: str) -> Pair:
    return pairs.make_positive(
        kind,
        unit["target"],
        unit["word"],
        unit["location"],
        certainty=unit["certainty"],
        sentence_index=unit["sentence_index"],
        grounded=unit["grounded_location"],
        reported=unit["reported_location"],
        mask_id=mask_id,
    )


def _make_drop(kind: str, target: str, reason: str) -> dict:
    return {"type": kind, "target": target, "reason": reason}


def _drop_conflicts(candidate_pairs: list[Pair]) -> tuple[list[Pair], list[dict]]:
    answers: dict[str, set[tuple[str, str | None]]] = {}
    for pair in candidate_pairs:
        answers.setdefault(pair.instruction, set()).add((pair.answer, pair.mask_id))
    pair_by_instruction: dict[str, Pair] = {}
    conflicts = []
    for pair in candidate_pairs:
        if len(answers[pair.instruction]) == 1:
            pair_by_instruction.setdefault(pair.instruction, pair)
        else:
            conflicts.append(_make_drop(pair.type, pair.target, "conflicting_answer"))
    return list(pair_by_instruction.values()), conflicts
