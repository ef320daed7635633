"""A trained model in the published layout: the conversion there and back loses nothing; its config has its sizes."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cxr.base.errors import UserError
from cxr.ils.rosalia import convert
from cxr.ils.rosalia.convert import to_sam
from cxr.ils.rosalia.lite import make_lite
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.samples import collate
from cxr.ils.rosalia.tokens import Tokens
from cxr.ils.training.rosalia import run_published
from rosalia_pairs import OPTIONS, pairs, tokens, write
from tiny_rosalia import SIZES


@pytest.fixture
def trained(tmp_path) -> Path:
    """A model of the engine lite; its numbers are bfloat16's, so that the published layout can hold them."""
    words = tokens()
    model = make_lite(SIZES, words, 3).bfloat16().float()
    model.save_pretrained(tmp_path / "model")
    words.save(tmp_path / "model")
    return tmp_path / "model"


def back(published: Path, model: Rosalia, target: Path) -> Rosalia:
    words = Tokens.load(published)
    convert.to_ours(
        published, target, seg_id=words.seg, image_id=words.image, clip_config=model.config.llava.vision_config,
        sam=model.config.sam, dtype=torch.float32,
    )  # fmt: skip
    return Rosalia.from_pretrained(target)


def test_there_and_back_draws_the_same(trained, tmp_path):
    run_published(model=trained, published=tmp_path / "published")
    model = Rosalia.from_pretrained(trained)
    again = back(tmp_path / "published", model, tmp_path / "again")
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    given = pairs(write(tmp_path / "data"))
    batch = collate([given[row] for row in range(3)], given.tokens.pad).to("cpu")
    with torch.no_grad():
        one, two = model(batch, all_logits=True), again(batch, all_logits=True)
    assert torch.equal(one.low_res, two.low_res)
    assert torch.equal(one.logits, two.logits)
    assert one.low_res.std() > 0
    assert OPTIONS.sam_side == SIZES.image


def test_the_layout_is_the_published_one(trained, tmp_path):
    run_published(model=trained, published=tmp_path / "published")
    held = load_file(tmp_path / "published/model.safetensors")
    assert {value.dtype for name, value in held.items() if "inv_freq" not in name} == {torch.bfloat16}
    assert {convert.our_name(name) for name in held if "inv_freq" not in name} == set(
        Rosalia.from_pretrained(trained).state_dict()
    )
    assert "model.layers.1.self_attn.rotary_emb.inv_freq" in held
    config = json.loads((tmp_path / "published/config.json").read_text())
    rows = len(held["model.embed_tokens.weight"])
    wanted = {
        "model_type": "llava", "vocab_size": rows, "hidden_size": 48, "intermediate_size": 192, "num_hidden_layers": 2,
        "num_attention_heads": 3, "mm_hidden_size": 48, "mm_vision_select_layer": -1, "out_dim": 32, "bos_token_id": 1,
        "eos_token_id": 2, "rope_theta": 10000.0, "mm_use_im_start_end": True,
    }  # fmt: skip
    assert {name: config[name] for name in wanted} == wanted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "published"]


def test_a_training_may_begin_from_the_sam_of_another(trained, tmp_path):
    to_sam(model=trained, sam=tmp_path / "sam.safetensors")
    model, other = Rosalia.from_pretrained(trained), make_lite(SIZES, tokens(), 4)
    assert not torch.equal(other.sam.vision_encoder.pos_embed, model.sam.vision_encoder.pos_embed)
    convert.reset_mask_branch(other, tmp_path / "sam.safetensors", 1)
    for name, value in model.sam.state_dict().items():
        assert torch.equal(other.sam.state_dict()[name], value), name


@pytest.mark.parametrize("named", ["base", "base/config.json"])
def test_config_and_words_of_the_base_are_taken_over(trained, tmp_path, named):
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text(json.dumps({"vocab_size": 7, "of": "the base"}))
    (base / "tokenizer.model").write_bytes(b"its words")
    run_published(model=trained, published=tmp_path / "published", base=tmp_path / named)
    rows = len(load_file(tmp_path / "published/model.safetensors")["lm_head.weight"])
    held = json.loads((tmp_path / "published/config.json").read_text())
    assert held == {"vocab_size": rows, "of": "the base"}
    assert (tmp_path / "published/tokenizer.model").read_bytes() == b"its words"
    assert not (tmp_path / "published/tokenizer.json").exists()


def test_an_older_folder_gives_way_whole(trained, tmp_path):
    (tmp_path / "published").mkdir()
    (tmp_path / "published/stale").touch()
    run_published(model=trained, published=tmp_path / "published")
    assert not (tmp_path / "published/stale").exists()


def refused(call, *words: str) -> None:
    with pytest.raises(UserError) as error:
        call()
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_model_that_is_not_whole_leaves_nothing(trained, tmp_path):
    def attempt():
        run_published(model=trained, published=tmp_path / "published")

    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.move(trained / name, tmp_path / name)
    refused(attempt, str(trained), "no tokenizer")
    held = load_file(trained / "model.safetensors")
    save_file({name: value for name, value in held.items() if name != "project.0.bias"}, trained / "model.safetensors")
    refused(attempt, "lacks project.0.bias")
    (trained / "config.json").unlink()
    refused(attempt, "config.json is missing")
    assert not list(tmp_path.glob("*published*"))
