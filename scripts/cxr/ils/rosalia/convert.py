"""Convert published checkpoints (LISA-7B-v1, ROSALIA-7B-v1, SAM, CLIP) to this project's layout and back.

In both directions every tensor must have a name in ``TABLE`` and the right shape, except for ``IGNORED_TENSORS``.
Tensors are converted one by one, so the whole model is never in memory.
"""

import json
import re
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, SamConfig

from cxr.base.errors import UserError, refuse_unreadable
from cxr.ils.rosalia.config import CLIP_L14, CONFIG, RosaliaConfig, read_config, write_config
from cxr.ils.rosalia.model import Rosalia
from cxr.nets.tensors import describe_misfit
from cxr.nets.weight_files import WeightFiles, fill_module, write_json, write_shards, write_weight_file
from cxr.segmentation.head import make_empty
from cxr.segmentation.published import SAM_TABLE, infer_sam_config, make_renamers

SAM_PREFIX = "model.visual_model."  # prefix of SAM's own names in LISA's checkpoints
CLIP_PREFIX = "model.vision_tower.vision_tower."
"""Prefix of CLIP's own names in LISA's checkpoints. The published models lack the weights of CLIP."""
CLIP_LAYER = "mm_vision_select_layer"
"""Key of a published config.json for the CLIP layer whose states the language model receives, such as -2."""
TABLE: tuple[tuple[str, str], ...] = (
    ("lm_head.*", "llava.lm_head.*"),
    ("model.embed_tokens.*", "llava.model.language_model.embed_tokens.*"),
    ("model.layers.#.*", "llava.model.language_model.layers.#.*"),
    ("model.norm.*", "llava.model.language_model.norm.*"),
    ("model.mm_projector.*", "llava.model.multi_modal_projector.linear_1.*"),
    ("model.text_hidden_fcs.0.0.*", "project.0.*"),
    ("model.text_hidden_fcs.0.2.*", "project.2.*"),
    (CLIP_PREFIX + "vision_model.*", "llava.model.vision_tower.*"),
    *((SAM_PREFIX + theirs, f"sam.{ours}") for theirs, ours in SAM_TABLE),
)
"""(published name, our name) of the tensors. A # stands for a number, and a * for the rest of the name."""
IGNORED_TENSORS = re.compile(
    r".*rotary_emb\.inv_freq|.*vision_model\.embeddings\.position_ids"
    r"|text_model\..*|logit_scale|(visual|text)_projection\.weight"
)
"""Names of the ignored tensors, which are computed from others or belong to CLIP's text encoder."""
our_name, published_name = make_renamers(TABLE)
"""Functions that map a published name to ours (None if unknown), and ours to the published name (or KeyError)."""


def read_llama_config(folder: str | Path, vocabulary: int) -> LlamaConfig:
    """Return the language model's sizes in a config.json. Raises UserError unless it states ``vocabulary`` tokens."""
    required_names = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps",
    )  # fmt: skip
    optional_names = ("num_key_value_heads", "max_position_embeddings", "bos_token_id", "eos_token_id")
    published_config = _read_published_config(folder)
    if missing := [name for name in required_names if name not in published_config]:
        raise UserError(f"{Path(folder) / CONFIG} lacks {missing[0]}: download the published file")
    if published_config["vocab_size"] != vocabulary:
        raise UserError(
            f"{Path(folder) / CONFIG} states {published_config['vocab_size']} tokens, but the weights beside it have "
            f"{vocabulary}: download both again"
        )
    names = [name for name in (*required_names, *optional_names) if published_config.get(name) is not None]
    llama_settings = {name: published_config[name] for name in names}
    rope = {"rope_type": "default", "rope_theta": float(published_config.get("rope_theta") or 10000.0)}
    path = Path(folder) / CONFIG
    with refuse_unreadable(path, f"{path} is damaged", "download the published file", StrictDataclassError):
        return LlamaConfig(**llama_settings, rope_parameters=rope, tie_word_embeddings=False)


def _read_published_config(folder: str | Path) -> dict:
    path = Path(folder) / CONFIG
    with refuse_unreadable(path, f"{path} is missing or damaged", "download the published file"):
        published_config = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(published_config, dict):
        raise UserError(f"{path} is no JSON object: download the published file")
    return published_config


def to_ours(
    source: str | Path,
    target: str | Path,
    *,
    seg_id: int,
    image_id: int,
    clip: str | Path = "",
    clip_config: CLIPVisionConfig = CLIP_L14,
    sam: SamConfig | None = None,
    dtype: torch.dtype = torch.bfloat16,
    shard_bytes: int = 5 * 10**9,
) -> RosaliaConfig:
    """Convert the published checkpoint in the folder ``source`` to our layout in ``target``; return its configuration.

    ``seg_id``, ``image_id``: ids of [SEG] and of the image token. ``clip``: folder of openai/clip-vit-large-patch14,
    read only if the checkpoint lacks CLIP's weights. ``sam``: sizes of SAM, by default inferred from the weights.
    Raises UserError if a tensor or file is missing, unexpected or damaged, or if a tensor has another shape.
    """
    with WeightFiles(source) as weights:
        file_name_by_ours = _match_names(weights, source, "")
        words = file_name_by_ours.get("llava.model.language_model.embed_tokens.weight")
        if words is None:
            raise UserError(f"{source} holds no weights of LISA (model.embed_tokens.weight is missing): download them")
        rows = weights.shapes[words][0]
        if not 0 <= seg_id < rows:
            raise UserError(f"{source} has {rows} tokens, but [SEG] has the id {seg_id}: use that folder's tokenizer")
        llava = LlavaConfig(
            vision_config=clip_config,
            text_config=read_llama_config(source, rows),
            image_token_index=image_id,
            image_seq_length=(clip_config.image_size // clip_config.patch_size) ** 2,
            projector_hidden_act="linear",
            vision_feature_layer=_read_published_config(source).get(CLIP_LAYER, -2),
            vision_feature_select_strategy="default",
        )
        sam_names = {ours: theirs for ours, theirs in file_name_by_ours.items() if ours.startswith("sam.")}
        sam_shapes = {ours.removeprefix("sam."): weights.shapes[theirs] for ours, theirs in sam_names.items()}
        config = RosaliaConfig(llava, sam or infer_sam_config(sam_shapes), seg_id)
        expected_shapes = _model_shapes(config)
        with WeightFiles(*([] if any("vision_tower" in name for name in file_name_by_ours) else [clip])) as tower:
            tensor_sources = {name: (weights, theirs) for name, theirs in file_name_by_ours.items()}
            tensor_sources |= {name: (tower, theirs) for name, theirs in _match_names(tower, clip, CLIP_PREFIX).items()}
            file_shapes = {name: file.shapes[theirs] for name, (file, theirs) in tensor_sources.items()}
            actual = {published_name(name): shape for name, shape in file_shapes.items()}
            expected = {published_name(name): shape for name, shape in expected_shapes.items()}
            if fault := describe_misfit(expected, actual):
                raise UserError(f"{source} holds the weights of another model ({fault}): download the published model")
            kinds = {name: (shape, dtype) for name, shape in expected_shapes.items()}
            write_shards(target, kinds, lambda name: tensor_sources[name][0].get(tensor_sources[name][1]), shard_bytes)
    write_config(target, config)
    return config


def _match_names(weights: WeightFiles, source: object, prefix: str) -> dict[str, str]:
    """Return {our name: name in the files} of all tensors except ignored ones. Raises UserError for an unknown name."""
    file_name_by_ours = {}
    for name in weights.shapes:
        if IGNORED_TENSORS.fullmatch(name):
            continue
        ours = our_name(prefix + name)
        if ours is None:
            raise UserError(f"{source} holds {name}, which is not a tensor of LISA: download the published weights")
        file_name_by_ours[ours] = name
    return file_name_by_ours


def _model_shapes(config: RosaliaConfig) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return {name: tuple(value.shape) for name, value in make_empty(lambda: Rosalia(config)).state_dict().items()}


def to_published(
    source: str | Path,
    target: str | Path,
    *,
    base: str | Path | None = None,
    with_clip: bool = False,
    dtype: torch.dtype = torch.bfloat16,
    shard_bytes: int = 5 * 10**9,
) -> None:
    """Convert the model in the folder ``source`` to the published layout (safetensors) in the folder ``target``.

    ``base``: folder of the published model from which the model was made, whose config.json is copied. Without it a
    config.json with the model's sizes is written. ``with_clip``: whether to write CLIP's weights, which published
    models lack. Raises UserError if the model or its config.json is missing or damaged.
    """
    config = read_config(source)
    rope = config.llava.text_config
    published_config = make_published_config(config) if base is None else _read_published_config(base)
    shapes = _model_shapes(config)
    names = {published_name(name): name for name in shapes if with_clip or ".vision_tower." not in name}
    with WeightFiles(source) as weights:
        if fault := describe_misfit(shapes, weights.shapes):
            raise UserError(f"{source} has other weights than its config.json says ({fault}): delete both and rerun")
        kinds = {theirs: (weights.shapes[ours], dtype) for theirs, ours in names.items()}
        # transformers 4.31 stores the rotary frequencies among the weights
        places = torch.arange(0, rope.head_dim, 2, dtype=torch.int64).float()
        angles = 1.0 / (rope.rope_parameters["rope_theta"] ** (places / rope.head_dim))
        tables = {f"model.layers.{n}.self_attn.rotary_emb.inv_freq" for n in range(rope.num_hidden_layers)}
        kinds |= dict.fromkeys(tables, (tuple(angles.shape), torch.float32))

        def read(name: str) -> torch.Tensor:
            return angles.clone() if name in tables else weights.get(names[name])

        write_shards(target, kinds, read, shard_bytes)
    write_json(Path(target) / CONFIG, published_config | {"vocab_size": rope.vocab_size})


def make_published_config(config: RosaliaConfig) -> dict:
    """Return the content of config.json in the published layout, which has LLaMA's and LLaVA's keys."""
    text, vision = config.llava.text_config, config.llava.vision_config
    names = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "bos_token_id", "eos_token_id",
        "pad_token_id", "hidden_act", "initializer_range",
    )  # fmt: skip
    published_config = {name: getattr(text, name) for name in names}
    theta, width = text.rope_parameters["rope_theta"], config.sam.prompt_encoder_config.hidden_size
    published_config |= {"model_type": "llava", "rope_theta": theta, "tie_word_embeddings": False}
    published_config |= {"mm_hidden_size": vision.hidden_size, "mm_use_im_start_end": True}
    published_config |= {"mm_vision_select_feature": "patch", CLIP_LAYER: config.llava.vision_feature_layer}
    return published_config | {"out_dim": width}


def to_sam(model: str | Path, sam: str | Path) -> None:
    """Write the SAM of the model in the folder ``model`` to the file ``sam``, float32 safetensors with SAM's names.

    :func:`reset_mask_branch` and SAM's published code can read the file. Raises UserError if the model is missing or
    damaged, or if its shapes contradict its config.json.
    """
    shapes = _model_shapes(read_config(model))
    names = {_sam_name(name): name for name in shapes if name.startswith("sam.")}
    with WeightFiles(model) as weights:
        if fault := describe_misfit(shapes, weights.shapes):
            raise UserError(f"{model} has other weights than its config.json says ({fault}): delete both and rerun")
        kinds = {theirs: (shapes[ours], torch.float32) for theirs, ours in sorted(names.items())}
        write_weight_file(sam, kinds, lambda name: weights.get(names[name]))


def _sam_name(name: str) -> str:
    return published_name(name).removeprefix(SAM_PREFIX)


def reset_mask_branch(model: Rosalia, sam: str | Path, seed: int) -> None:
    """Reset SAM and the projection in place, as the published training code does after it loads LISA-7B.

    SAM gets the original weights in the file ``sam`` (sam_vit_h_4b8939.pth). The projection gets torch's random weights
    of linear layers, which depend on ``seed``. Raises UserError if the file is not of this SAM.
    """
    with WeightFiles(sam) as weights:
        fill_module(model.sam, weights, str(sam), lambda name: _sam_name(f"sam.{name}"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in model.project:
            if isinstance(layer, nn.Linear):
                fresh = nn.Linear(layer.in_features, layer.out_features)
                with torch.no_grad():
                    layer.weight.copy_(fresh.weight)
                    layer.bias.copy_(fresh.bias)
