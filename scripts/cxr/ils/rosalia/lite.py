"""A small ROSALIA for a CPU. The base is this model with the weights in resources/rosalia, made by train.py there."""

from collections.abc import Iterable

import torch
from torch import nn
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, SamConfig

from cxr.base.atomic import atomic_folder
from cxr.base.paths import RESOURCES
from cxr.base.seeds import stable_hash
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.tokens import Tokens, make_word_tokenizer
from cxr.ils.settings import LiteSizes
from cxr.nets.weight_files import WeightFiles
from cxr.segmentation.published import make_sam_config

HEAD_SIZE = 16  # channels of every attention head
CLIP_LAYERS = 2
WINDOW = 7
"""Side in patches of the attention windows in SAM's encoder. Every second layer and the last attend globally."""


def make_lite_configs(sizes: LiteSizes, tokens: Tokens) -> tuple[LlavaConfig, SamConfig]:
    """Return (configuration of LLaVA, configuration of SAM) of the small model."""
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


def make_lite(sizes: LiteSizes, tokens: Tokens, seed: int) -> Rosalia:
    """Return the small model with random weights that depend only on the seed.

    SAM is initialised as in its published code. With the initial weights of transformers, which are near zero and have
    high-frequency positions, it does not learn.
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
"""Names of the tensors that have one row per token of the vocabulary."""


def load_base() -> tuple[Rosalia, Tokens]:
    """Return (model with the weights in resources/rosalia in float32, its tokenizer)."""
    return Rosalia.from_pretrained(FOLDER), Tokens.load(FOLDER)


def extend_base(sizes: LiteSizes, texts: Iterable[str], seed: int) -> tuple[Rosalia, Tokens]:
    """Return (model of ``sizes`` with the weights in resources/rosalia, tokenizer). New words get random weights."""
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


def run_base(*, model: str) -> None:
    """Write the model in resources/rosalia, in float32, and its tokenizer into the folder ``model``, untrained."""
    base_model, tokens = load_base()
    with atomic_folder(model) as making:
        base_model.save_pretrained(making)
        tokens.save(making)
