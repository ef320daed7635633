"""One image asked about: what it gets among others, a conversation, boxes in its own pixels, and what is refused."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.hdf5 import FRAME_SIZE, ShardWriter
from cxr.base.tables import read_lines, write_lines
from cxr.imaging.one_image import decode_image_file
from cxr.vlm.answers.ask import Asker
from cxr.vlm.answers.engine import ModelAnswer
from cxr.vlm.answers.one_image import FAILURE_MESSAGES, SingleImageStore, ask, make_samples, run_image, write_results
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings
from vlm_runs import ASKING, COMPUTE, data, recipe, run_answers, tune

STAGES = stage_options(Settings())
QUESTIONS = ["the bright thing", "the dark thing"]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Path:
    return tune(tmp_path_factory.mktemp("tuned"), data(tmp_path_factory.mktemp("drawn"), pictures=9), recipe(epochs=4))


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Path:
    """A picture that is wider than high, so that its frame is padded."""
    path = tmp_path_factory.mktemp("image") / "chest.png"
    rng = np.random.default_rng(8)
    picture = cv2.GaussianBlur(rng.integers(0, 256, (300, 420)).astype(np.uint8), (0, 0), 9)
    picture = cv2.normalize(picture, None, 0, 255, cv2.NORM_MINMAX)
    cv2.imwrite(str(path), picture)
    return path


def asked(tuned: Path, image: Path, folder: Path, questions=QUESTIONS, referring=False, options=ASKING) -> dict:
    return run_image(
        run=str(tuned), base="", image=str(image), output=str(folder), questions=questions, referring=referring,
        asking=asdict(options), cohort=STAGES["cohort"], frames=STAGES["frames"], quality=85, compute=COMPUTE,
        code="7",
    )  # fmt: skip


def among_others(tuned: Path, image: Path, folder: Path, lines: list[dict]) -> list[str]:
    """The answers of the stage to lines about a shard of frames that holds the image."""
    picture, _ = decode_image_file(str(image), STAGES["cohort"], STAGES["frames"])
    with ShardWriter(folder / "frames" / "00.h5") as writer:
        for name, frame in (("other", 255 - picture.frame), ("chest", picture.frame)):
            writer.append(
                name, image=frame, to_original=picture.affine, original_shape=np.array(picture.grey.shape, np.int32)
            )
    write_lines(folder / "lines.jsonl", lines)
    run_answers(
        lines=str(folder / "lines.jsonl"), pictures=[str(folder / "frames" / "00.h5")],
        answers=str(folder / "answers.jsonl"), run=str(tuned), options=ASKING, attrs={}, compute=COMPUTE,
    )  # fmt: skip
    return [line["text"] for line in read_lines(folder / "answers.jsonl") if line["sample_id"].startswith("chest")]


def test_a_conversation_gets_what_it_gets_among_others(tuned, image, tmp_path):
    turns = [{"question": text, "answer": ""} for text in QUESTIONS]
    told = {"source": "own", "split": "test", "task": "conversation", "turns": turns}
    lines = [{"sample_id": name, "image_id": name} | told for name in ("other", "chest")]
    wanted = among_others(tuned, image, tmp_path, lines)
    about = asked(tuned, image, tmp_path / "out")
    assert [turn["answer"] for turn in about["turns"]] == wanted
    assert wanted[0] != wanted[1]
    assert json.loads((tmp_path / "out" / "answers.json").read_text()) == about
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "1_overlay.png", "2_overlay.png", "answers.json", "conversation.html",
    ]  # fmt: skip


def test_a_referring_run_is_asked_each_question_alone(tuned, image, tmp_path):
    """The second query has the answer that it has without the first, boxes wanted in the run's own words."""
    query = {"image_id": "chest", "source": "own", "split": "test", "boxes": []}
    lines = [query | {"query_id": f"chest{number}", "query": text} for number, text in enumerate(QUESTIONS)]
    wanted = among_others(tuned, image, tmp_path, lines)
    about = asked(tuned, image, tmp_path / "out", referring=True)
    assert [turn["answer"] for turn in about["turns"]] == wanted
    (alone,) = asked(tuned, image, tmp_path / "alone", QUESTIONS[1:], referring=True)["turns"]
    assert alone["answer"] == wanted[1]


class Says:
    """An engine that gives fixed answers."""

    at_once = 0

    def __init__(self, *said: ModelAnswer):
        self.said = iter(said)

    def answer(self, asked):
        return [next(self.said) for _ in asked]


def test_boxes_are_fractions_of_the_image_and_are_drawn_on_it(tuned, image, tmp_path):
    """A box over the picture's lower right quarter is drawn there; a failed turn says why, the next is not asked."""
    picture, _ = decode_image_file(str(image), STAGES["cohort"], STAGES["frames"])
    real = Asker.from_run(str(tuned), "", ASKING, Setup(device="cpu", batch=8))
    texts = ['{"bbox_2d": [500, 500, 1000, 1000]}', "Nothing of that kind."]
    asker = Asker(
        Says(*(ModelAnswer(text, 3, "end") for text in texts), ModelAnswer("", 0, "", "too_long")),
        real.collator,
        ASKING,
    )
    replies = ask(
        asker, make_samples(["Where?", "What?", "Why?", "Which?"], referring=False), SingleImageStore(picture, 56)
    )
    assert [reply.reading.boxes.tolist() for reply in replies] == [[[0.5, 0.5, 1, 1]], [], [], []]
    assert [reply.failure for reply in replies] == [
        "",
        "",
        FAILURE_MESSAGES["too_long"],
        FAILURE_MESSAGES["turn_before"],
    ]
    tmp_path.joinpath("out").mkdir()
    about = write_results(tmp_path / "out", picture, replies, "mine", 0)
    assert [turn["boxes"] for turn in about["turns"]] == [[[0.5, 0.5, 1, 1]], [], [], []]
    drawn = [cv2.imread(str(tmp_path / "out" / f"{number}_overlay.png")).astype(int) for number in (1, 2)]
    orange = [np.argwhere(_near(one, (0, 159, 230))) for one in drawn]
    assert len(orange[0]) - len(orange[1]) > 500
    centre = np.array(drawn[0].shape[:2]) / 2
    new = np.argwhere(_near(drawn[0], (0, 159, 230)) & ~_near(drawn[1], (0, 159, 230)))
    assert (new.mean(axis=0) > centre).all()


def _near(image: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    return (np.abs(image - np.array(colour)) < 40).all(axis=2)


def test_the_model_sees_the_picture_without_the_frames_padding(image):
    picture, _ = decode_image_file(str(image), STAGES["cohort"], STAGES["frames"])
    store = SingleImageStore(picture, 0)
    (sample,) = make_samples(["x"], referring=False)
    shown = store.get(sample)
    assert shown.shape[:2] == store.size(sample)
    side = FRAME_SIZE
    assert shown.shape[1] == side
    assert abs(shown.shape[0] - side * 300 / 420) <= 1
    assert shown[0].std() > 0
    assert SingleImageStore(picture, 56).get(sample).shape == (40, 56, 3)


@pytest.mark.parametrize("questions", [[], [""], ["What?", "  "], [3]])
def test_an_empty_question_is_refused(questions):
    with pytest.raises(UserError, match="questions contains an empty text"):
        make_samples(questions, referring=False)


def test_a_file_that_is_no_chest_x_ray_is_refused(tuned, tmp_path):
    (tmp_path / "a.png").write_bytes(b"none")
    with pytest.raises(UserError, match="give a frontal chest X-ray"):
        asked(tuned, tmp_path / "a.png", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_longer_conversation_than_the_model_may_read_says_so(tuned, image, tmp_path):
    """Thirty tokens hold the picture and the first question, not the first answer too."""
    about = asked(tuned, image, tmp_path / "out", [*QUESTIONS, "more"], options=replace(ASKING, max_length=30))
    assert [turn["failure"] for turn in about["turns"]] == [
        "",
        FAILURE_MESSAGES["too_long"],
        FAILURE_MESSAGES["turn_before"],
    ]
