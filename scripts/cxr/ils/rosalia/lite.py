"""A small model of the same classes for a CPU, and its base in resources/rosalia (made by its train.py)."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Protocol

import torch
from torch import nn
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, SamConfig

from cxr.base.errors import UserError
from cxr.base.paths import RESOURCES
from cxr.base.seeds import stable_hash
from cxr.ils.rosalia.config import RosaliaConfig, read_config
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.tokens import Tokens, make_word_tokenizer
from cxr.nets.weight_files import WeightFiles
from cxr.segmentation.published import make_sam_config

HEAD_SIZE = 16
"""Channels of every attention head."""
CLIP_LAYERS = 2
WINDOW = 7
"""Side of the attention window in patches; every second layer of SAM's encoder and the last have global attention."""


class Sizes(Protocol):
    """Settings ``training.lite.sizes``: sides in pixels, widths in channels."""

    image: int
    patch: int
    width: int
    depth: int
    clip_image: int
    clip_patch: int
    hidden: int
    layers: int


def make_lite_configs(sizes: Sizes, tokens: Tokens) -> tuple[LlavaConfig, SamConfig]:
    """Return the configurations of LLaVA and SAM. Raises UserError for incompatible sizes."""
    for name, unit in (("width", HEAD_SIZE), ("hidden", HEAD_SIZE)):
        if getattr(sizes, name) % unit:
            raise UserError(f"training.lite.sizes.{name} is {getattr(sizes, name)}: make it a multiple of {unit}")
    for name, unit in (("image", sizes.patch), ("clip_image", sizes.clip_patch)):
        if getattr(sizes, name) % unit:
            raise UserError(
                f"training.lite.sizes.{name} is {getattr(sizes, name)}, not a multiple of its patch {unit}: change one"
            )
    heads, hidden = sizes.width // HEAD_SIZE, sizes.hidden
    vision = CLIPVisionConfig(
        hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=CLIP_LAYERS,
        num_attention_heads=hidden // HEAD_SIZE, image_size=sizes.clip_image, patch_size=sizes.clip_patch,
    )  # fmt: skip
    text = LlamaConfig(
        vocab_size=len(tokens), hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=sizes.layers,
        num_attention_heads=hidden // HEAD_SIZE, max_position_embeddings=2048, bos_token_id=tokens.bos,
        eos_token_id=tokens.eos, pad_token_id=tokens.pad, initializer_range=hidden**-0.5,
    )  # fmt: skip
    llava = LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=tokens.image, projector_hidden_act="linear",
        image_seq_length=(sizes.clip_image // sizes.clip_patch) ** 2, vision_feature_layer=-1,
    )  # fmt: skip
    global_layers = tuple(sorted({*range(1, sizes.depth, 2), sizes.depth - 1}))
    sam = make_sam_config(
        sizes.image, sizes.patch, sizes.width, sizes.depth, heads, WINDOW, global_layers,
        sizes.width, heads, 4 * sizes.width, sizes.width,
    )  # fmt: skip
    return llava, sam


def read_sizes(config: RosaliaConfig) -> Sizes:
    """Return the sizes of a model made by :func:`make_lite_configs`."""
    clip_vision, sam_vision, text = config.llava.vision_config, config.sam.vision_config, config.llava.text_config
    return SimpleNamespace(
        image=sam_vision.image_size, patch=sam_vision.patch_size,
        width=sam_vision.hidden_size, depth=sam_vision.num_hidden_layers,
        clip_image=clip_vision.image_size, clip_patch=clip_vision.patch_size,
        hidden=text.hidden_size, layers=text.num_hidden_layers,
    )  # fmt: skip


def make_lite(sizes: Sizes, tokens: Tokens, seed: int) -> Rosalia:
    """Return the model with random weights that depend only on the seed.

    transformers initialises SAM with near-zero weights and high-frequency positions, because it expects to overwrite
    them. Here they are initialised as in SAM's own code, so that the model can learn.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stable_hash("lite", seed) % 2**63)
        model = Rosalia.from_configs(*make_lite_configs(sizes, tokens), tokens.seg)
        for module in model.sam.modules():
            if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
                module.reset_parameters()
        nn.init.normal_(model.sam.shared_image_embedding.positional_embedding)
        nn.init.trunc_normal_(model.sam.vision_encoder.pos_embed, std=0.02)
    return model


RESOURCE_FILES = ("rosalia/model.safetensors", "rosalia/config.json", "rosalia/tokenizer.json",
                  "rosalia/tokenizer_config.json")  # fmt: skip
FOLDER = RESOURCES / "rosalia"
TENSORS_BY_TOKEN = ("llava.model.language_model.embed_tokens.weight", "llava.lm_head.weight")
"""Tensors with one row per token."""


def load_base() -> tuple[Rosalia, Tokens]:
    """Return the base in float32 and its tokenizer."""
    return Rosalia.from_pretrained(FOLDER), Tokens.load(FOLDER)


def extend_base(sizes: Sizes, texts: Iterable[str], seed: int) -> tuple[Rosalia, Tokens]:
    """Return the base in float32, with a tokenizer extended by the words of the texts.

    Known words keep their learnt rows; rows of new words are random and depend on the seed. Raises UserError if the
    sizes differ from the base's.
    """
    base_sizes = vars(read_sizes(read_config(FOLDER)))
    for name, value in base_sizes.items():
        if getattr(sizes, name) != value:
            raise UserError(
                f"training.lite.sizes.{name} is {getattr(sizes, name)}, but the base in resources/rosalia has {value}: "
                "leave it so, or set training.lite.init to random"
            )
    base_vocabulary = Tokens.load(FOLDER).tokenizer.get_vocab()
    tokens = Tokens.prepare(make_word_tokenizer(texts, base_vocabulary))
    model = make_lite(sizes, tokens, seed)
    rows = tokens.tokenizer.convert_tokens_to_ids(list(base_vocabulary))
    state = model.state_dict()
    with WeightFiles(FOLDER) as weights:
        for name, tensor in state.items():
            if name in TENSORS_BY_TOKEN:
                tensor[rows] = weights.get(name)[list(base_vocabulary.values())].float()
            else:
                tensor.copy_(weights.get(name))
    return model, tokens
