"""A user's mistakes in the inputs of a training: each is reported in one sentence."""

import json
from pathlib import Path

import h5py
import pytest

from cxr.base.errors import UserError
from cxr.workflow.settings import SettingsError, read
from training_runs import data, options, run_until, train


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> dict:
    return data(tmp_path_factory.mktemp("data"))


def damaged(given: dict, folder: Path, fault: str) -> dict:
    """Return inputs with one mistake in them."""
    lines = [json.loads(text) for text in Path(given["train"]).read_text().splitlines()]
    changed = folder / "changed.jsonl"
    if fault == "mask":
        lines[0] |= {"seg": True, "mask_id": "m99"}
    elif fault == "image":
        lines[3]["image_id"] = "i99"
    elif fault == "positives":
        lines = [line for line in lines if not line["seg"]]
    elif fault == "validate":
        changed.write_text("")
        return given | {"validate": str(changed)}
    changed.write_text("\n".join(json.dumps(line) for line in lines))
    return given | {"train": str(changed)}


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("mask", r"^\S+changed\.jsonl: the mask m99 of the pair \S+ is not in .*: give the masks of the same"),
        ("image", r"^\S+changed\.jsonl: the image i99 of the pair \S+ is not in .*: add them$"),
        ("positives", r"^\S+changed\.jsonl holds no positive pair: train on a dataset with positive and negative"),
        ("validate", r"^\S+changed\.jsonl holds no pair: choose another split"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, given, fault, sentence):
    wrong = damaged(given, tmp_path, fault)
    with pytest.raises(UserError, match=sentence) as found:
        train(tmp_path / "out", wrong, options())
    assert "\n" not in str(found.value)
    # and once it is mended the training starts
    if fault == "mask":
        train(tmp_path / "out", given, options({"epochs": 1}))


def test_a_start_of_another_shape_is_one_sentence(tmp_path, given, monkeypatch):
    run_until(tmp_path, given, monkeypatch, 1)
    config = tmp_path / "checkpoint/start/config.json"
    held = json.loads(config.read_text())
    held["llava"]["text_config"]["intermediate_size"] *= 2
    config.write_text(json.dumps(held))
    with pytest.raises(UserError, match=r"start holds weights that do not fit the model \(the shape differs for llava"):
        train(tmp_path, given)


def test_a_damaged_mask_is_one_sentence_from_a_reading_process_too(tmp_path, given):
    path = tmp_path / "00.h5"
    raw = bytearray(Path(given["masks"][0]).read_bytes())
    with h5py.File(given["masks"][0]) as file:
        chunk = file["mask"].id.get_chunk_info(0) if file["mask"].chunks else None
        place = chunk.byte_offset if chunk else file["mask"].id.get_offset()
    raw[place + 5 : place + 25] = b"\xff" * 20
    path.write_bytes(raw)
    wrong = given | {"masks": [str(path), given["masks"][1]]}
    for threads in (1, 2):
        with pytest.raises(UserError, match=r"^pair \S+: \S+00\.h5 is damaged: delete it and run again") as found:
            train(tmp_path / "out", wrong, threads=threads)
        assert "\n" not in str(found.value)


@pytest.mark.parametrize("name", ["lite", "rosalia"])
def test_a_batch_without_a_half_is_refused_with_the_settings(name):
    recipe = {"batch": 3, "micro_batch": 3, "balance": "exact"}
    with pytest.raises(SettingsError) as found:
        read({"training": {name: recipe}})
    assert str(found.value) == f"training: {name}.micro_batch is 3, but balance exact needs an even number: change one."
    assert getattr(read({"training": {name: recipe | {"balance": "expectation"}}}).training, name).micro_batch == 3


@pytest.mark.parametrize("training_key", [{"lines": "lines.jsonl"}, {"paraphrases": True}])
def test_what_only_a_training_uses_is_refused_without_one(training_key):
    (name,) = training_key
    with pytest.raises(SettingsError, match=f"{name} has no effect if trained is false"):
        read({"training": {"runs": {"asked": {"trained": False, "weights": "lite"} | training_key}}})
