"""The text-only baseline: what the question alone gives away."""

import numpy as np
import pytest

from cxr.radvlm.evaluation import blind as blind_module
from cxr.radvlm.evaluation.blind import BlindAnswers
from cxr.radvlm.samples import make_line

IMAGE = {"source": "own", "subject_id": "p", "study_id": "s", "image_id": "i", "split": "train"}
NO = ("No, I see no {}.", "No {} is visible.", "No.")
YES = ("Yes, there is a {}.", "Yes.", "Yes, a {} is visible.")
ASK = ("Is there a {}?", "Do you see a {} on this film?", "Would you say there is a {}?", "{}, yes or no?")


def line(*turns, task="conversation", boxes=None, **image):
    qa_pairs = [{"question": question, "answer": answer, "wording": ""} for question, answer in turns]
    return make_line("n", task, IMAGE | image, [], boxes=boxes or {}) | {"turns": qa_pairs}


def answer_to(blind: BlindAnswers, question: str, task="conversation", **image) -> str:
    return blind.answer(line((question, ""), task=task, **image)).text


@pytest.fixture(scope="module")
def lopsided() -> BlindAnswers:
    """Pneumothorax is denied in nine of ten questions, effusion affirmed in six of ten, in three wordings each."""
    rng, lines = np.random.default_rng(3), []
    for name, share in (("pneumothorax", 0.1), ("pleural effusion", 0.6)):
        for number in range(120):
            words = YES if number < 120 * share else NO
            lines.append(line((rng.choice(ASK).format(name), rng.choice(words).format(name))))
    return BlindAnswers(lines)


@pytest.mark.parametrize("question", [*ASK, "Could there be a {}?", "And what about a {}?"])
def test_the_name_alone_answers_an_unbalanced_question_in_any_wording(lopsided, question):
    assert answer_to(lopsided, question.format("pneumothorax")).startswith("No")
    assert answer_to(lopsided, question.format("pleural effusion")).startswith("Yes")


def test_the_wordings_of_a_no_count_together():
    """Four in ten say yes in one wording; the six that say no are spread over three."""
    lines = [line(("Is there a mass?", "Yes, I see it."))] * 4 + [
        line(("Is there a mass?", text)) for text in ("No mass.", "No, none.", "No.") for _ in range(2)
    ]
    assert answer_to(BlindAnswers(lines), "Is there a mass?").startswith("No")


def test_a_box_is_the_mean_of_the_name():
    boxes = [[0.1, 0.2, 0.3, 0.4], [0.3, 0.2, 0.5, 0.8]]
    lines = [
        line(("Where is the nodule?", "It is at <box:nodule>."), task="conversation_grounded", boxes={"nodule": [box]})
        for box in boxes
    ]
    grounded = BlindAnswers(lines).answer(line(("Where is the nodule?", ""), task="conversation_grounded"))
    np.testing.assert_allclose(grounded.boxes().boxes, [[0.2, 0.2, 0.4, 0.6]])


def test_each_turn_is_answered_and_another_source_or_task_is_not_borrowed(lopsided):
    turns = [("Is there a pneumothorax?", ""), ("Is there a pleural effusion?", "")]
    assert [text.split()[0].strip(",.") for text in lopsided.answer(line(*turns)).texts] == ["No", "Yes"]
    assert answer_to(lopsided, "Is there a pneumothorax?", source="vindr") == ""
    assert answer_to(lopsided, "Is there a pneumothorax?", task="conversation_grounded") == ""


def test_another_task_gets_the_commonest_answer_without_boxes():
    box, texts = {"x": [[0.1, 0.1, 0.2, 0.2]]}, ["B.", "A.", "B.", *["See <box:x>."] * 3]
    tasks = ("report_generation", "conversation")
    lines = [line(("Report.", text), task=task, boxes=box) for task in tasks for text in texts]
    blind = BlindAnswers(lines)
    assert answer_to(blind, "Report.", task="report_generation") == "B."
    assert answer_to(blind, "Report.") == "See [0.10, 0.10, 0.20, 0.20]."


def test_a_first_word_of_rare_answers_alone_is_never_predicted(monkeypatch):
    """At full size, the rarest answers are not among those that the model can give."""
    monkeypatch.setattr(blind_module, "MOST_ANSWERS", 1)
    blind = BlindAnswers([line(("Is there a mass?", "No."))] * 3 + [line(("What is quux?", "Quux is a word."))])
    assert answer_to(blind, "What is quux?") == "No."
