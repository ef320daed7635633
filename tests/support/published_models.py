"""Write tiny random LISA and ROSALIA models in the formats of the published ones."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save, save_file
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig

from cxr.ils.rosalia.convert import CLIP_PREFIX, SAM_PREFIX, make_published_config, published_name
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.tokens import Tokens
from cxr.segmentation.published import make_sam_config

TOKENIZER = Path(__file__).parent / "llama_tokenizer/slow"
ADDED = ("[SEG]", "<im_start>", "<im_end>")


def words(folder: Path) -> Path:
    """Write LISA's tokenizer: SentencePiece, and beside it the tokens that were added."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.model", "tokenizer_config.json"):
        shutil.copyfile(TOKENIZER / name, folder / name)
    first = len(Tokens.prepare(TOKENIZER)) - len(ADDED) - 1
    (folder / "added_tokens.json").write_text(json.dumps({word: first + n for n, word in enumerate(ADDED)}))
    special = {
        "additional_special_tokens": list(ADDED[1:]),
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    return folder


def tiny(tokens: Tokens, seed: int) -> Rosalia:
    """A model of the published classes, small and random, numbers bfloat16; SAM's decoder has the published heads."""
    torch.manual_seed(seed)
    vision = CLIPVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2, image_size=28, patch_size=14
    )
    text = LlamaConfig(
        vocab_size=tokens.image, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=3,
        rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2, pad_token_id=0, initializer_range=0.1,
    )  # fmt: skip
    llava = LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=tokens.image, projector_hidden_act="linear",
        image_seq_length=4, vision_feature_layer=-2,
    )  # fmt: skip
    sam = make_sam_config(64, 8, 32, 3, 2, 5, (1,), 32, 8, 64, 24)
    model = Rosalia.from_configs(llava, sam, tokens.seg)
    with torch.no_grad():
        for parameter in model.sam.parameters():
            parameter.copy_(torch.randn(parameter.shape) / max(1, parameter[0].numel()) ** 0.5)
    return model.bfloat16().eval()


def learn_to_begin_with_seg(model: Rosalia, batch) -> None:
    """Let an answer to any prompt that ends as this one does begin with [SEG], as ROSALIA's do."""
    batch = batch.to("cpu", torch.bfloat16)
    with torch.no_grad():
        hidden = model(batch).hidden[0, batch.attention[0].sum() - 1].float()
        model.llava.lm_head.weight[model.config.seg_id] = (10 * hidden / hidden.norm()).bfloat16()


def tensors_of(model: Rosalia) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The tensors by their published names: LISA's own, and those of CLIP's own file."""
    named = {published_name(name): value for name, value in model.state_dict().items()}
    clip = {name.removeprefix(CLIP_PREFIX): v.float() for name, v in named.items() if name.startswith(CLIP_PREFIX)}
    rest = {name: value for name, value in named.items() if not name.startswith(CLIP_PREFIX)}
    for layer in range(model.config.llava.text_config.num_hidden_layers):
        rest[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    return rest, clip


def write(folder: Path, model: Rosalia, kind: str, parts: int) -> Path:
    """Write a checkpoint's folder without its tokenizer: ``kind`` bin or safetensors, in parts with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    config = make_published_config(model.config) | {"torch_dtype": "bfloat16", "architectures": ["LISAForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config | {"mm_vision_tower": "openai/clip-vit-large-patch14"}))
    held, where = tensors_of(model)[0], {}
    stem = "pytorch_model" if kind == "bin" else "model"
    for part in range(parts):
        some = {name: held[name] for name in sorted(held)[part::parts]}
        name = f"{stem}-{part + 1:05d}-of-{parts:05d}.{kind}" if parts > 1 else f"{stem}.{kind}"
        where |= dict.fromkeys(some, name)
        torch.save(some, folder / name) if kind == "bin" else save_file(some, folder / name, {"format": "pt"})
    if parts > 1:
        (folder / f"{stem}.{kind}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    (folder / "README.md").write_text("---\nlicense: llama2\n---\n")
    (folder / "generation_config.json").write_text("{}")
    return folder


def clip_files(model: Rosalia) -> dict[str, bytes]:
    """What the hub holds of CLIP: its configuration names the number type, and both halves lie in its weights."""
    vision = model.config.llava.vision_config.to_dict() | {"torch_dtype": "float32"}
    vision.pop("dtype", None)
    config = {"model_type": "clip", "torch_dtype": "float32", "vision_config": vision, "text_config": {"vocab_size": 9}}
    held = tensors_of(model)[1] | {
        "text_model.final_layer_norm.weight": torch.ones(4), "logit_scale": torch.tensor(2.0),
        "visual_projection.weight": torch.ones(2, 2), "vision_model.embeddings.position_ids": torch.arange(5)[None],
    }  # fmt: skip
    return {"config.json": json.dumps(config).encode(), "model.safetensors": save(held, {"format": "pt"})}


def sam_file(path: Path, model: Rosalia) -> Path:
    """SAM's own file, of values unlike those in LISA."""
    held = {name: value for name, value in tensors_of(model)[0].items() if name.startswith(SAM_PREFIX)}
    torch.save({name.removeprefix(SAM_PREFIX): value.float() + 1 for name, value in held.items()}, path)
    return path
