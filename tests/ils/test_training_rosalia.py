"""The engine rosalia: from published files, of tiny sizes, to a training by the paper's recipe."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from conversions import converter
from cxr.base.errors import UserError
from cxr.ils.rosalia.convert import CLIP_PREFIX, SAM_PREFIX
from cxr.ils.rosalia.lite import make_lite
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.tokens import Tokens
from cxr.ils.training import rosalia
from cxr.ils.training.rosalia import run_published
from cxr.ils.training.settings import TrainingOptions
from cxr.segmentation import published
from rosalia_pairs import tokens
from tiny_rosalia import SIZES
from training_runs import data, train


def options(init: str = "lisa") -> TrainingOptions:
    """The paper's recipe but for its length, run in one process."""
    recipe = {
        "init": init, "runner": "plain", "epochs": 1, "batch": 4, "micro_batch": 2, "dtype": "float32",
        "lora": {"rank": 4, "alpha": 8}, "warmup": 2,
    }  # fmt: skip
    return TrainingOptions.from_dict({"seed": 2026, "engine": "rosalia", "rosalia": recipe})


@pytest.fixture
def files(tmp_path, monkeypatch) -> dict[str, str]:
    """What the weights stage makes of published files: those of a small model, SAM's own with other values."""
    words = tokens()
    model = make_lite(SIZES, words, 5).bfloat16().float()
    model.save_pretrained(tmp_path / "ours")
    words.save(tmp_path / "ours")
    run_published(model=tmp_path / "ours", published=tmp_path / "published")
    held = load_file(tmp_path / "published/model.safetensors")
    clip = {name.removeprefix(CLIP_PREFIX): value for name, value in held.items() if name.startswith(CLIP_PREFIX)}
    rest = {name: value for name, value in held.items() if not name.startswith(CLIP_PREFIX)}
    sam = {
        name.removeprefix(SAM_PREFIX): value.float() + 1 for name, value in rest.items() if name.startswith(SAM_PREFIX)
    }
    made, placed = tmp_path / "results/weights", tmp_path / "weights/lisa"
    shutil.copytree(tmp_path / "published", placed, ignore=shutil.ignore_patterns("*.safetensors"))
    (made / "lisa").mkdir(parents=True)
    for shard, names in enumerate((sorted(rest)[::2], sorted(rest)[1::2]), 1):
        torch.save({name: rest[name] for name in names}, placed / f"pytorch_model-0000{shard}-of-00002.bin")
        converter("lisa")(
            placed / f"pytorch_model-0000{shard}-of-00002.bin", made / f"lisa/model-0000{shard}-of-00002.safetensors"
        )
    for path in placed.glob("*.json"):
        shutil.copyfile(path, made / "lisa" / path.name)
    (made / "clip").mkdir()
    save_file(clip, made / "clip/model.safetensors")
    vision = model.config.llava.vision_config.to_dict()
    (made / "clip/config.json").write_text(json.dumps({"model_type": "clip", "vision_config": vision}))
    torch.save(sam, tmp_path / "weights/sam_vit_h_4b8939.pth")
    converter("sam")(tmp_path / "weights/sam_vit_h_4b8939.pth", made / "sam.safetensors")
    # what no tensor tells; a small model has fewer
    monkeypatch.setattr(published, "DECODER_HEADS", model.config.sam.mask_decoder_config.num_attention_heads)
    named = {name: str(made / Path(path).relative_to("results/weights")) for name, path in rosalia.INPUTS.items()}
    return {name: path for name, path in named.items() if Path(path).exists()}


def start(files: dict[str, str], folder: Path, init: str) -> dict[str, torch.Tensor]:
    made = options(init)
    rosalia.load(made, files, folder, [])
    assert Tokens.load(folder).seg == Rosalia.from_pretrained(folder).config.seg_id
    return Rosalia.from_pretrained(folder).state_dict()


def test_where_a_training_starts(files, tmp_path):
    original = Rosalia.from_pretrained(tmp_path / "ours").state_dict()
    lisa, reset = (start(files, tmp_path / init, init) for init in ("lisa", "paper_code"))
    assert lisa.keys() == original.keys() == reset.keys()
    for name, value in original.items():
        assert torch.equal(lisa[name], value), name
        if name.startswith("project."):  # drawn anew
            assert not torch.equal(reset[name], value), name
        elif name.startswith("sam."):  # SAM's own, though LISA had trained its mask decoder
            assert torch.equal(reset[name], (value + 1).bfloat16().float()), name
        else:
            assert torch.equal(reset[name], value), name


def test_the_papers_recipe_trains_what_it_names(files, tmp_path):
    given = data(tmp_path / "data")
    train(tmp_path / "run", given | files, options())
    before = Rosalia.from_pretrained(tmp_path / "ours").state_dict()
    after = Rosalia.from_pretrained(tmp_path / "run/model").state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    for part in ("llava.lm_head", "llava.model.language_model.layers.0.mlp.up_proj", "project.0", "sam.mask_decoder"):
        assert any(name.startswith(part) for name in changed), part
    frozen = (
        "llava.model.vision_tower",
        "llava.model.multi_modal_projector",
        "sam.vision_encoder",
        "sam.prompt_encoder",
    )
    assert not [name for name in changed if name.startswith(frozen)]
    assert not [name for name in changed if "layernorm" in name and name.startswith("llava")]


def test_a_file_of_another_model_is_one_sentence(files, tmp_path):
    shard = Path(files["lisa"], "model-00001-of-00002.safetensors")
    tensors = load_file(shard)
    tensors.pop(sorted(tensors)[0])
    save_file(tensors, shard)
    with pytest.raises(UserError, match=r"holds the weights of another model \(it lacks") as error:
        start(files, tmp_path / "start", "lisa")
    assert "\n" not in str(error.value)
