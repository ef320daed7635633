"""The base of ROSALIA lite: what it holds, how a training begins from it, and what it never saw."""

import hashlib
import json
import re

import cv2
import numpy as np
import pytest
import torch

import predict
from conftest import ROOT, SLICE, write_settings
from cxr.base.vocabulary import LESIONS, VALID_LOCATIONS
from cxr.ils.rosalia.config import read_config
from cxr.ils.rosalia.lite import FOLDER, TENSORS_BY_TOKEN, extend_base, load_base, make_lite_configs, run_base
from cxr.ils.rosalia.tokens import write_prompt
from cxr.ils.settings import LiteSizes
from cxr.ils.templates import TYPES, write_instruction, write_negative_answer
from cxr.imaging.phantom.make_phantom import draw_frontal
from cxr.imaging.phantom.plan import make_plan
from cxr.nets.lite_weights import list_weights
from cxr.nets.weight_files import WeightFiles
from cxr.workflow.settings import Settings
from tiny_rosalia import frame

SIZES = LiteSizes()
LIMIT = 6 * 10**6
"""Bytes that the repository gives to these weights at most."""


def asked(text: str) -> str:
    return write_prompt(text, "[SEG]", "llava_v1")


def test_it_has_the_sizes_of_the_settings_and_is_small():
    config = read_config(FOLDER)
    llava, sam = make_lite_configs(SIZES, load_base()[1])
    for part, base_part in (
        (llava.text_config, config.llava.text_config),
        (sam.vision_config, config.sam.vision_config),
    ):
        assert (part.hidden_size, part.num_hidden_layers) == (base_part.hidden_size, base_part.num_hidden_layers)
    assert sum(path.stat().st_size for path in FOLDER.glob("*.safetensors")) < LIMIT
    with WeightFiles(FOLDER) as weights:
        assert {weights.get(name).dtype for name in weights.shapes} == {torch.float16}
    model, _ = load_base()
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}


def test_its_card_names_its_digest_and_its_licence():
    (weights,) = list_weights({"training": "lite"}, [], "used")
    told = re.search(r"`([0-9a-f]{64})`", (FOLDER / "CARD.md").read_text(encoding="utf-8"))
    assert told[1] == weights["sha256"] == hashlib.sha256((FOLDER / "model.safetensors").read_bytes()).hexdigest()
    assert weights["licence"].startswith("non-commercial use only")


def test_it_knows_every_word_of_the_instructions_and_answers():
    _, tokens = load_base()
    for kind in TYPES:
        for lesion in LESIONS if kind != "lesion_inference" else ("opacity",):
            for text in (
                write_instruction(kind, lesion, VALID_LOCATIONS),
                write_negative_answer(kind, lesion, VALID_LOCATIONS),
            ):
                ids = tokens.tokenizer(text.removeprefix("[SEG] "), add_special_tokens=False).input_ids
                assert tokens.tokenizer.unk_token_id not in ids


def test_a_training_begins_with_all_of_it_and_new_words_beside():
    held, known = load_base()
    model, tokens = extend_base(SIZES, [asked("Segment the bicycle in the garage.")], 3)
    new = {"▁bicycle", "▁garage"}
    assert set(tokens.tokenizer.get_vocab()) == set(known.tokenizer.get_vocab()) | new
    theirs, ours = held.state_dict(), model.state_dict()
    assert theirs.keys() == ours.keys()
    for name, value in theirs.items():
        if name not in TENSORS_BY_TOKEN:
            assert torch.equal(ours[name], value)
            continue
        for word, row in known.tokenizer.get_vocab().items():
            assert torch.equal(ours[name][tokens.tokenizer.convert_tokens_to_ids(word)], value[row])
    assert model.config.seg_id == tokens.seg
    again, _ = extend_base(SIZES, [asked("Segment the bicycle in the garage.")], 3)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in ours.items())


def test_new_words_change_no_answer():
    """Only ids differ: an instruction of known words is read as before."""
    held, known = load_base()
    model, tokens = extend_base(SIZES, [asked("Segment the bicycle.")], 3)
    text = "Segment the edema in the right lung."
    places = held.config.llava.image_seq_length
    states = []
    for each, words in ((held, known), (model.eval(), tokens)):
        ids = words.encode(text, None, "llava_v1", places, 512)[0]
        plain = ids[ids != words.image][None]
        with torch.no_grad():
            states.append(each.llava.model.language_model(inputs_embeds=each._embed_tokens(plain)).last_hidden_state)
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=1e-6)


def test_it_answers_without_a_training(tmp_path):
    run_base(model=str(tmp_path / "model"))
    cv2.imwrite(str(tmp_path / "a.png"), frame(1))
    given = ["--model", str(tmp_path / "model"), "--image", str(tmp_path / "a.png"), "--output", str(tmp_path / "out")]
    assert predict.main([*given, "--instruction", "Segment the edema in the right lung."]) == 0
    (said,) = json.loads((tmp_path / "out/answers.json").read_text(encoding="utf-8"))["findings"]
    assert said["answer"].startswith("[SEG]")


@pytest.mark.slow
def test_the_demo_asks_the_base_beside_what_it_trains(tmp_path, dry_run):
    write_settings(tmp_path, SLICE)
    jobs = dry_run(tmp_path, "evaluation")
    assert (jobs["training_run"], jobs["training_base"], jobs["inference_run"], jobs["evaluation_run"]) == (1, 1, 2, 2)
    write_settings(tmp_path, SLICE | {"training": {"lite": {"init": "random"}}})
    jobs = dry_run(tmp_path, "evaluation")
    assert "training_base" not in jobs
    assert jobs["inference_run"] == 1


@pytest.mark.slow
def test_one_image_is_asked_about_at_once(tmp_path, dry_run):
    (tmp_path / "a.png").write_bytes(b"")
    write_settings(tmp_path, SLICE)
    told = ("--config", "image=a.png", "instruction=Segment the edema.")
    assert dry_run(tmp_path, "predict", *told) == {"training_base": 1, "inference_predict": 1, "predict": 1}


def test_the_demo_is_not_among_what_it_learnt():
    """Neither its seed nor, of the first study under any of the seeds, the picture."""
    text = (ROOT / "resources/rosalia/train.py").read_text(encoding="utf-8")
    learnt = {int(seed) for seed in re.findall(r"^    Part\((\d+), ", text, flags=re.M)}
    assert len(learnt) == 3
    demo = Settings().seed
    assert demo not in learnt
    pictures = {}
    for seed in {demo, *learnt}:
        plan = next(one for one in make_plan(seed, 6, 9) if not one.images[0].fault)
        pictures[seed] = draw_frontal(plan, plan.images[0], seed).image
    for seed in learnt:
        assert pictures[seed].shape != pictures[demo].shape or np.abs(pictures[seed] - pictures[demo]).mean() > 0.01
