"""The small model: reproducible from its seed, of the sizes in the settings, able to learn."""

from dataclasses import dataclass

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from cxr.ils.rosalia.lite import make_lite
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.samples import Batch
from cxr.ils.rosalia.tokens import Tokens, make_word_tokenizer
from cxr.ils.training.fit import LossWeights, compute_losses

QUESTIONS = ("Segment the top.", "Segment the bottom.")


@dataclass(frozen=True)
class Sizes:
    image: int = 64
    patch: int = 8
    width: int = 32
    depth: int = 2
    clip_image: int = 32
    clip_patch: int = 16
    hidden: int = 32
    layers: int = 2


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens.prepare(make_word_tokenizer([*QUESTIONS, "It is [SEG]."]))


def halves(tokens: Tokens, answers: bool) -> Batch:
    """Two questions on a picture: its lower or its upper half."""
    texts = [tokens.encode(q, "It is [SEG]." if answers else None, "llava_v1", 4, 512) for q in QUESTIONS]
    lengths = torch.tensor([len(ids) for ids, _ in texts])
    upper = torch.zeros(1, 64, 64)
    upper[:, :32] = 1
    ids = pad_sequence([ids for ids, _ in texts], batch_first=True)
    return Batch(
        input_ids=ids,
        attention=(torch.arange(ids.shape[1]) < lengths[:, None]).long(),
        labels=pad_sequence([labels for _, labels in texts], batch_first=True, padding_value=-100),
        images=torch.linspace(-2, 2, 64)[:, None].expand(1, 3, 64, 64),
        clip=torch.linspace(-2, 2, 32)[:, None].expand(1, 3, 32, 32),
        image_of=torch.tensor([0, 0]),
        masks=[upper, 1 - upper],
        resized=[(64, 64)],
        original=[(64, 64)] * 2,
        pair_ids=["top", "bottom"],
    )


def test_the_seed_alone_makes_the_weights(tokens):
    torch.manual_seed(1)
    drawn = torch.get_rng_state()
    first = make_lite(Sizes(), tokens, 3).state_dict()
    assert torch.equal(torch.get_rng_state(), drawn)
    torch.manual_seed(2)
    again, other = make_lite(Sizes(), tokens, 3).state_dict(), make_lite(Sizes(), tokens, 4).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not torch.equal(first["project.0.weight"], other["project.0.weight"])


def test_sizes_are_those_asked_for(tokens):
    model = make_lite(Sizes(), tokens, 0)
    views = model.encode(halves(tokens, True))
    assert views.features.shape == (1, (32 // 16) ** 2, 32)
    assert views.embeddings.shape == (1, 32, 64 // 8, 64 // 8)
    assert model.llava.lm_head.weight.shape == (len(tokens), 32)
    assert (model.config.seg_id, model.config.image_id) == (tokens.seg, tokens.image)
    assert model(halves(tokens, True)).low_res.shape == (2, 1, 32, 32)


def test_every_part_that_is_used_gets_a_gradient(tokens):
    model, batch = make_lite(Sizes(), tokens, 0).train(), halves(tokens, True)
    compute_losses(model(batch), batch, LossWeights(0.5, 5.0, 1.0))["loss"].backward()
    still = {name for name, value in model.named_parameters() if value.grad is None or not value.grad.any()}
    unused = ("post_layernorm", "point_embed", "not_a_point_embed", "mask_embed", "iou_prediction_head")
    other_masks = ("output_hypernetworks_mlps.1", "output_hypernetworks_mlps.2", "output_hypernetworks_mlps.3")
    # keys' biases shift all scores of a softmax alike; the frequencies of positions are not trained, but could be
    assert {name for name in still if not any(part in name for part in (*unused, *other_masks, "k_proj.bias"))} == set()


@pytest.mark.slow
def test_it_learns_which_half_is_asked_for_and_to_answer(tokens, tmp_path):
    model, batch = make_lite(Sizes(), tokens, 0).train(), halves(tokens, True)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    for _ in range(100):
        optimiser.zero_grad()
        compute_losses(model(batch), batch, LossWeights(0.5, 5.0, 1.0))["loss"].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    model.save_pretrained(tmp_path)
    model = Rosalia.from_pretrained(tmp_path)
    found = model.generate(halves(tokens, False), 16)
    for ids, drawn, mask in zip(found.ids, found.masks, batch.masks, strict=True):
        assert tokens.decode(ids) == "It is [SEG] . </s>"
        assert ((drawn > 0) == (mask > 0)).float().mean() > 0.95
