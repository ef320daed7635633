"""A plain port of the published code's loop to our modules, the reference of `benchmarks/rosalia.py`.

It uses the same weights and modules of transformers as our code, but LISA's order of computation. SAM's encoder
processes one image at a time, once for each instruction. For each new token, the language model and CLIP process the
whole input again (use_cache=False). Logits and projections are computed at all positions. SAM's decoder predicts the
masks of one image at a time. `tests/workflow/test_benchmarks_rosalia.py` compares the port with the original's arrays.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.samples import Batch
from cxr.ils.rosalia.tokens import IGNORED
from cxr.segmentation.head import resize_logits
from cxr.segmentation.losses import LossWeights, bce_loss, dice_loss


@dataclass(frozen=True)
class Read:
    """Output of the language model: hidden states and logits (B, L, ·), projections (B, L, C)."""

    hidden: torch.Tensor
    logits: torch.Tensor
    projected: torch.Tensor


def read(model: Rosalia, ids: torch.Tensor, clip: torch.Tensor, attention: torch.Tensor | None) -> Read:
    """Run CLIP and the language model on whole texts (B, L), each with its image (B, 3, c, c)."""
    llava = model.llava.model
    with torch.no_grad():
        states = llava.vision_tower(clip, output_hidden_states=True).hidden_states
    features = llava.multi_modal_projector(states[model.config.llava.vision_feature_layer][:, 1:])
    places = ids == model.config.image_id
    words = llava.language_model.embed_tokens(ids.masked_fill(places, 0))
    embedded = words.masked_scatter(places[:, :, None], features.to(words.dtype))
    made = llava.language_model(
        inputs_embeds=embedded, attention_mask=attention, use_cache=False, output_hidden_states=True
    )
    hidden = made.hidden_states[-1]  # after the last norm, as LISA takes it
    return Read(hidden, model.llava.lm_head(hidden), model.project(hidden))


def asked(model: Rosalia, ids: torch.Tensor) -> torch.Tensor:
    """Return the positions before a [SEG] token, bool (B, L)."""
    return torch.cat([ids[:, 1:] == model.config.seg_id, torch.zeros_like(ids[:, :1], dtype=torch.bool)], 1)


def embedding(model: Rosalia, image: torch.Tensor) -> torch.Tensor:
    """Return SAM's embedding of one image (1, 3, S, S)."""
    with torch.no_grad():
        return model.sam.vision_encoder(image).last_hidden_state


def draw(model: Rosalia, seg: torch.Tensor, embedded: torch.Tensor, resized: tuple, target: tuple) -> torch.Tensor:
    """Return mask logits (n, H, W) for n prompts (n, C) on one image embedding (1, C, h, w)."""
    sam = model.sam
    low_res, _ = sam.mask_decoder(
        image_embeddings=embedded,
        image_positional_embeddings=sam.get_image_wide_positional_embeddings(),
        sparse_prompt_embeddings=seg[None, :, None],
        dense_prompt_embeddings=sam.prompt_encoder.no_mask_embed.weight[:, :, None, None],
        multimask_output=False,
    )
    return resize_logits(low_res[0, :, 0], model.config.sam.vision_config.image_size, resized, target)


def predicted(model: Rosalia, batch: Batch) -> tuple[Read, list[torch.Tensor]]:
    """Run texts with their answers through the model, as LISA's forward; return mask logits (n, H, W) of each
    sample."""
    pictures = batch.image_of.tolist()
    embedded = [embedding(model, batch.images[image : image + 1]) for image in pictures]
    found = read(model, batch.input_ids, batch.clip[batch.image_of], batch.attention)
    where = asked(model, batch.input_ids) & batch.attention.bool()
    masks = [
        draw(model, found.projected[row][where[row]], embedded[row], batch.resized[image], batch.original[row])
        for row, image in enumerate(pictures)
    ]
    return found, masks


def losses(model: Rosalia, batch: Batch, weights: LossWeights) -> dict[str, torch.Tensor]:
    """Return the losses of a training step: loss, ce, bce, dice; Dice over positives only, as in the authors' fork."""
    found, masks = predicted(model, batch)
    ce = functional.cross_entropy(
        found.logits[:, :-1].float().flatten(0, 1), batch.labels[:, 1:].flatten(), ignore_index=IGNORED
    )
    sums, counts = dict.fromkeys(("bce", "dice"), 0.0), dict.fromkeys(("bce", "dice"), 0)
    for drawn, wanted in zip(masks, batch.masks, strict=True):
        for name, function in (("bce", bce_loss), ("dice", dice_loss)):
            if name == "bce" or bool(wanted.any()):
                sums[name] = sums[name] + function(drawn, wanted).sum()
                counts[name] += len(wanted)
    parts = {"ce": weights.text * ce}
    for name in sums:
        parts[name] = getattr(weights, name) * sums[name] / (counts[name] + 1e-8)
    return {"loss": sum(parts.values())} | parts


@torch.no_grad()
def evaluate(model: Rosalia, batch: Batch, max_new_tokens: int) -> tuple[list[int], torch.Tensor]:
    """Answer one prompt greedily, as LISA's evaluate; return the answer's ids, and mask logits (n, H, W) of its
    [SEG]."""
    ids = batch.input_ids
    for _ in range(max_new_tokens):
        found = read(model, ids, batch.clip, None)
        token = found.logits[:, -1].float().argmax(-1)
        ids = torch.cat([ids, token[:, None]], 1)
        if token.item() == model.config.eos_id:
            break
    # the last step's states are those of every token but the last
    where = asked(model, ids)[0, :-1]
    embedded = embedding(model, batch.images)
    said = ids[0, batch.input_ids.shape[1] :].tolist()
    seg = found.projected[0][where]
    if not len(seg):
        return said, seg.new_zeros((0, *batch.original[0]), dtype=torch.float32)
    return said, draw(model, seg, embedded, batch.resized[0], batch.original[0])
