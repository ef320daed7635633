"""The model against the numerical reference of the original codes, and against itself where there is no reference."""

import importlib.util
import sys
import warnings
from dataclasses import replace
from unittest import mock

import pytest
import torch
from torch import nn

from conftest import ROOT
from cxr.ils.rosalia.convert import published_name
from cxr.ils.rosalia.generation import PrefixCache
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.samples import Batch
from cxr.ils.training.fit import LossWeights, bce_loss, compute_losses, dice_loss
from cxr.segmentation.head import decode_masks
from host_reads import host_reads
from lisa_reference import CASES, IMAGE_ID, Reference

CLOSE, MASKS, NORMS = 1e-4, 5e-4, 1e-3
"""Tolerances of rosalia.md section 5: states and losses, mask logits, norms of gradients (relative)."""
GENERATED_SEG = 83
CODES = [(case, code) for case in CASES for code in ("lisa", "rosalia") if (case, code) != ("C_multi", "rosalia")]


@pytest.fixture(scope="module")
def reference(shared) -> Reference:
    return Reference(shared / "fixtures" / "lisa_reference")


@pytest.fixture(scope="module")
def model(reference) -> Rosalia:
    return reference.model()


def off(found: torch.Tensor, wanted: torch.Tensor) -> float:
    assert found.shape == wanted.shape
    return float((found.detach() - wanted).abs().max())


def weights(reference: Reference, name: str) -> LossWeights:
    held = reference.meta["loss_weights"][name]
    return LossWeights(text=held["ce"], bce=held["bce"], dice=held["dice"])


def of_images(reference: Reference, case: str) -> list[torch.Tensor]:
    """The reference's predictions of a case, one (n, H, W) an image."""
    return [reference[f"{case}/out/pred_masks/{n}"] for n in range(reference.count(f"{case}/out/pred_masks"))]


@pytest.mark.parametrize("case", CASES)
def test_every_stage_is_that_of_the_original(reference, model, case):
    batch = reference.batch(case)
    views = model.encode(batch)
    found = model(batch, views, all_logits=True)
    real = batch.attention.bool()
    out = {name: reference[f"{case}/out/{name}"] for name in ("last_hidden", "logits", "seg_hidden", "image_features")}

    assert off(views.features[batch.image_of], out["image_features"]) < CLOSE
    assert off(views.embeddings, reference[f"{case}/out/image_embeddings"]) < CLOSE
    assert off(found.hidden[real], out["last_hidden"][real]) < CLOSE
    assert off(found.logits[real], out["logits"][real]) < CLOSE
    assert off(model.project(found.hidden)[real], out["seg_hidden"][real]) < CLOSE
    before = torch.cat([batch.input_ids[:, 1:] == reference.seg, torch.zeros(len(real), 1, dtype=torch.bool)], 1)
    assert off(found.seg, out["seg_hidden"][before]) < CLOSE
    assert found.sample_of.tolist() == before.nonzero()[:, 0].tolist()
    assert off(found.low_res, reference[f"{case}/out/low_res_masks"]) < MASKS
    assert off(found.iou, reference[f"{case}/out/iou_pred"]) < CLOSE


@pytest.mark.parametrize("case", CASES)
def test_masks_are_those_of_the_original(reference, model, case):
    batch = reference.batch(case)
    masks = model(batch).masks
    for image, wanted in enumerate(of_images(reference, case)):
        owners = [place for place, of in enumerate(batch.image_of.tolist()) if of == image]
        found = torch.cat([masks[owner] for owner in owners])
        assert off(found, wanted) < MASKS
        assert ((found > 0) == (wanted > 0)).all()
        assert 0 < (wanted > 0).float().mean() < 1


@pytest.mark.parametrize("name", ["lisa", "rosalia"])
@pytest.mark.parametrize(("case", "code"), CODES)
def test_losses_are_those_of_both_codes(reference, model, case, code, name):
    batch = reference.batch(case)
    on = {"lisa": "all", "rosalia": "positives"}[code]
    found = compute_losses(model(batch), batch, weights(reference, name), on)
    assert list(found) == ["loss", "ce", "bce", "dice"]
    for ours, theirs in zip(found, ("loss", "ce_loss", "mask_bce_loss", "mask_dice_loss"), strict=True):
        assert abs(found[ours].item() - float(reference[f"{case}/loss/code_{code}/weights_{name}/{theirs}"])) < CLOSE


def test_the_two_codes_differ_where_a_target_is_empty(reference, model):
    batch = reference.batch("A_square")
    output = model(batch)
    both = [compute_losses(output, batch, weights(reference, "rosalia"), on) for on in ("all", "positives")]
    assert (both[0]["dice"] - both[1]["dice"]).item() > 0.05
    assert both[0]["bce"].item() == both[1]["bce"].item()


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize(("case", "code"), CODES)
def test_gradients_are_those_of_both_codes(reference, case, code, checkpointed):
    model, batch = reference.model().train(), reference.batch(case)
    for part in (model.llava.model.vision_tower, model.sam.vision_encoder, model.sam.prompt_encoder):
        part.requires_grad_(False)
    if checkpointed:
        model.checkpoint_gradients()
    on = {"lisa": "all", "rosalia": "positives"}[code]
    compute_losses(model(batch), batch, weights(reference, "rosalia"), on)["loss"].backward()
    found = {
        published_name(name): float(value.grad.norm())
        for name, value in model.named_parameters()
        if value.grad is not None
    }
    prefix = f"{case}/gradnorm/code_{code}/"
    wanted = {key.removeprefix(prefix): float(reference[key]) for key in reference.arrays.files if prefix in key}
    assert len(wanted) == 150
    large = {name: value for name, value in wanted.items() if value > 1e-4}
    assert len(large) > 120
    for name, value in large.items():
        assert found[name] == pytest.approx(value, rel=NORMS), name


def test_generation_with_a_cache_gives_the_tokens_and_mask_of_the_original_without(reference):
    model, batch = reference.model(GENERATED_SEG), reference.question()
    found = model.generate(batch, int(reference["evaluate/in/max_new_tokens"]))
    asked = reference["evaluate/in/input_ids"].shape[1]
    assert found.ids == [reference["evaluate/output_ids"][0, asked:].tolist()]
    assert GENERATED_SEG in found.ids[0]
    assert off(found.masks[0], reference["evaluate/pred_masks"]) < MASKS
    assert ((found.masks[0] > 0) == (reference["evaluate/pred_masks"] > 0)).all()


def test_unit_losses(reference):
    logits, target = reference["unit/logits"], reference["unit/gt"]
    for function, name in ((bce_loss, "bce"), (dice_loss, "dice")):
        mean = function(logits, target).sum() / (len(target) + 1e-8)
        assert float(mean) == pytest.approx(float(reference[f"unit/{name}"]), abs=1e-6)
    empty = dice_loss(logits, torch.zeros_like(target)).mean()
    assert float(empty) == pytest.approx(float(reference["unit/dice_empty_gt"]), abs=1e-6)


def test_dice_by_hand():
    certain = torch.tensor([[[50.0, -50.0], [50.0, -50.0]]])
    half = torch.tensor([[[1.0, 1.0], [0.0, 0.0]]])
    assert float(dice_loss(certain, half)) == pytest.approx(1 - (2 * 0.001 + 1e-6) / (0.004 + 1e-6), abs=1e-6)
    assert float(dice_loss(certain, certain.clamp(0, 1))) == pytest.approx(0, abs=1e-6)


# Negative controls: what must not pass.


def at_seg(model: Rosalia, batch: Batch) -> torch.Tensor:
    """Mask logits from the embedding AT [SEG] instead of before it."""
    views = model.encode(batch)
    output = model(batch, views)
    at = (batch.input_ids == model.config.seg_id).nonzero()
    seg = model.project(output.hidden[at[:, 0], at[:, 1]])
    return decode_masks(model.sam, seg, views.embeddings[batch.image_of[at[:, 0]]])[0]


def last_clip_layer(model: Rosalia, batch: Batch) -> torch.Tensor:
    model.config.llava.vision_feature_layer = -1
    return model(batch).low_res


def gelu_projector(model: Rosalia, batch: Batch) -> torch.Tensor:
    model.llava.model.multi_modal_projector.act = nn.GELU()
    return model(batch).low_res


def decoder_of_transformers(model: Rosalia, batch: Batch) -> torch.Tensor:
    for layer in model.sam.mask_decoder.transformer.layers:
        for n in (1, 2, 3, 4):
            getattr(layer, f"layer_norm{n}").eps = 1e-6
    return model(batch).low_res


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("wrong", [at_seg, last_clip_layer, gelu_projector, decoder_of_transformers])
def test_a_wrong_build_fails(reference, wrong, case):
    found = wrong(reference.model(), reference.batch(case))
    assert off(found, reference[f"{case}/out/low_res_masks"]) > 2 * MASKS


# What the original cannot do, or does more slowly.


def prompts(reference: Reference, case: str) -> Batch:
    """A case's samples cut before their first [SEG], padded anew."""
    batch = reference.batch(case)
    first = torch.tensor([int((row == reference.seg).nonzero()[0, 0]) for row in batch.input_ids])
    length = int(first.max())
    return replace(
        batch,
        input_ids=batch.input_ids[:, :length].where(torch.arange(length)[None] < first[:, None], 0),
        attention=(torch.arange(length)[None] < first[:, None]).long(),
        labels=torch.full((len(first), length), -100),
    )


@pytest.mark.parametrize("case", CASES)
def test_segmenting_without_generating_draws_the_mask_of_the_first_seg(reference, model, case):
    full = model(reference.batch(case)).masks
    found = model.segment(prompts(reference, case))
    for wanted, mask in zip(full, found, strict=True):
        assert off(mask, wanted[0].detach()) < MASKS
        assert ((mask > 0) == (wanted[0] > 0)).all()


def test_what_prompts_begin_with_alike_is_read_once(reference, model):
    batch = prompts(reference, "A_square")
    of_one = replace(batch, image_of=torch.zeros(3, dtype=torch.long))
    same = batch.input_ids.clone()
    same[:, :265] = same[0, :265]
    of_one = replace(of_one, input_ids=same)
    lengths = []
    seen = model.llava.model.language_model.register_forward_pre_hook(
        lambda _, args, kwargs: lengths.append(tuple(kwargs["inputs_embeds"].shape[:2])), with_kwargs=True
    )
    found = model.segment(of_one)
    seen.remove()
    assert lengths[0] == (1, 264)  # all up to the last token of the image, for one
    assert lengths[1][0] == 3
    for place in range(3):
        alone = replace(
            of_one,
            **{name: getattr(of_one, name)[place : place + 1] for name in ("input_ids", "attention", "image_of")},
            original=of_one.original[place : place + 1],
        )
        assert off(found[place], model.segment(alone)[0]) < MASKS


def naive(model: Rosalia, batch: Batch, row: int, steps: int) -> tuple[list[int], list[torch.Tensor]]:
    """Greedy answer of one sample, everything computed anew at every step, as the original does."""
    length = int(batch.attention[row].sum())
    ids = batch.input_ids[row : row + 1, :length]
    for _ in range(steps):
        one = replace(
            batch,
            input_ids=ids,
            attention=torch.ones_like(ids),
            labels=torch.full_like(ids, -100),
            image_of=batch.image_of[row : row + 1],
            original=batch.original[row : row + 1],
        )
        output = model(one, all_logits=True)
        ids = torch.cat([ids, output.logits[:, -1].argmax(-1, keepdim=True)], 1)
        if ids[0, -1] == model.config.eos_id:
            break
    one = replace(one, input_ids=ids, attention=torch.ones_like(ids), labels=torch.full_like(ids, -100))
    return ids[0, length:].tolist(), list(model(one).masks[0])


@pytest.mark.parametrize("case", CASES)
def test_answers_of_a_batch_are_those_of_each_alone(reference, case):
    # all samples utter the one token, which stands for a mask here, or the other, which ends an answer here
    batch, model, steps, end = prompts(reference, case), reference.model(GENERATED_SEG), 14, 50
    model.config.llava.text_config.eos_token_id = end
    found = model.generate(batch, steps)
    for row, ids in enumerate(found.ids):
        wanted, masks = naive(model, batch, row, steps)
        assert ids == wanted
        assert len(found.masks[row]) == len(masks) == ids.count(GENERATED_SEG)
        for mask, other in zip(found.masks[row], masks, strict=True):
            assert off(mask, other.detach()) < MASKS
    assert sum(len(masks) for masks in found.masks) > 0
    assert end in [ids[-1] for ids in found.ids]
    assert len({len(ids) for ids in found.ids}) > 1  # some ended early, so that the batch shrank


@pytest.mark.parametrize("case", CASES)
def test_an_answer_does_not_depend_on_how_often_the_host_looks(reference, case):
    batch, model = prompts(reference, case), reference.model(GENERATED_SEG)
    model.config.llava.text_config.eos_token_id = 50
    each, seldom = (model.generate(batch, 14, every=every) for every in (1, 5))
    assert each.ids == seldom.ids
    for one, other in zip(each.masks, seldom.masks, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=0, atol=MASKS)
        assert ((one > 0) == (other > 0)).all()


def test_the_host_waits_for_no_token(reference):
    """It looks every fourth token whether all answers ended, and reads them once at the end."""
    batch, model = prompts(reference, "A_square"), reference.model(GENERATED_SEG)
    model.config.llava.text_config.eos_token_id = -1  # no answer ends, so nothing else differs
    waits = {}
    for most in (4, 24):
        with host_reads() as seen:
            assert [len(ids) for ids in model.generate(batch, most, every=4).ids] == [most] * 3
        waits[most] = seen.total()
    print(f"the host waits {waits[4]} times for 4 tokens, {waits[24]} times for 24")
    assert waits[24] - waits[4] == 5  # the looks after 4, 8, 12, 16 and 20


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch sees")
def test_a_gpus_tokens_make_the_host_wait_for_looks_alone(reference):
    batch, model = prompts(reference, "A_square").to("cuda"), reference.model(GENERATED_SEG).to("cuda")
    model.config.llava.text_config.eos_token_id = -1
    waits = {}
    for most in (4, 4, 24):  # the first warms up
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                model.generate(batch, most, every=4)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        waits[most] = sum("synchroniz" in str(one.message) for one in told)
    assert waits[24] - waits[4] <= 5 * 2  # nonzero and the length of what it gives


def test_masks_alone_keep_no_keys_but_of_shared_beginnings(reference, model, monkeypatch):
    """Validation reads nothing again: of different images there is no cache, of one image that of the beginning."""
    made = []
    monkeypatch.setattr("cxr.ils.rosalia.model.PrefixCache", lambda *how: made.append(PrefixCache(*how)) or made[-1])
    batch = prompts(reference, "A_square")
    batch = replace(batch, input_ids=torch.cat([batch.input_ids[:1, :265].expand(3, -1), batch.input_ids[:, 265:]], 1))
    apart = replace(batch, image_of=torch.arange(3), images=batch.images[[0, 0, 0]], clip=batch.clip[[0, 0, 0]],
                    resized=batch.resized[:1] * 3)  # fmt: skip
    found = model.segment(apart)
    assert [layer.keys for layer in made[-1].layers] == [None] * len(made[-1].layers)
    of_one = replace(apart, image_of=torch.zeros(3, dtype=torch.long), images=batch.images[:1], clip=batch.clip[:1])
    shared = model.segment(of_one)
    text = model.config.llava.text_config
    bytes_of_a_token = 2 * 4 * text.num_hidden_layers * text.num_key_value_heads * text.head_dim
    kept = sum(held.nbytes for layer in made[-1].layers for held in (layer.keys, layer.values))
    assert kept == 264 * bytes_of_a_token  # all up to the last token of the image, for one
    for one, other in zip(found, shared, strict=True):
        assert off(one, other) < MASKS


def test_an_answer_without_seg_has_no_mask(reference):
    model, batch = reference.model(91), prompts(reference, "B_nonsquare")
    found = model.generate(batch, 3)
    assert [tuple(masks.shape) for masks in found.masks] == [(0, 90, 120), (0, 75, 60)]
    output = model(reference.batch("B_nonsquare"))
    assert output.low_res.shape == (0, 1, 32, 32)
    assert output.iou.shape == (0, 1)


def test_padding_is_not_seen(reference, model):
    batch = reference.batch("A_square")
    other = replace(batch, input_ids=batch.input_ids.where(batch.attention.bool(), reference.seg))
    plain, found = model(batch), model(other)
    assert torch.equal(found.low_res, plain.low_res)
    assert torch.equal(found.text_logits, plain.text_logits)


def test_the_image_token_may_have_a_row_in_the_embedding(reference, model):
    batch, inside = reference.batch("B_nonsquare"), 90
    llava, sam = reference.configs()
    llava.image_token_index = inside
    other = Rosalia.from_configs(llava, sam, reference.seg).eval()
    other.load_state_dict(model.state_dict())
    ids = batch.input_ids.where(batch.input_ids != IMAGE_ID, inside)
    assert torch.equal(other(replace(batch, input_ids=ids)).low_res, model(batch).low_res)


def test_the_image_token_must_stand_once_for_each_feature(reference, model):
    batch = reference.batch("B_nonsquare")
    batch.input_ids[1, 100] = 5
    with pytest.raises(ValueError, match="256 times"):
        model(batch)


@pytest.mark.parametrize("how", [lambda model: model.bfloat16(), lambda model: nn.ModuleList([model]).to(torch.half)])
def test_rotary_frequencies_stay_float32(reference, how):
    model = reference.model()
    wanted = model.llava.model.language_model.rotary_emb.inv_freq.clone()
    how(model)
    assert model.llava.lm_head.weight.dtype != torch.float32
    found = model.llava.model.language_model.rotary_emb.inv_freq
    assert found.dtype == torch.float32
    assert torch.equal(found, wanted)


def test_images_one_by_one_or_all_at_once(reference):
    model, batch = reference.model(), reference.batch("A_square")
    wanted = model.encode(batch).embeddings
    seen = []
    model.sam.vision_encoder.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    model.images_at_once = 2
    assert off(model.encode(batch).embeddings, wanted.detach()) < 1e-5
    assert seen == [2, 1]


def test_gradients_reach_an_encoder_only_if_it_is_trained(reference):
    model, batch = reference.model().train(), reference.batch("B_nonsquare")
    assert model.encode(batch).embeddings.requires_grad
    model.sam.vision_encoder.requires_grad_(False)
    model.llava.model.vision_tower.requires_grad_(False)
    model.llava.model.multi_modal_projector.requires_grad_(False)
    views = model.encode(batch)
    assert not views.embeddings.requires_grad
    assert not views.features.requires_grad
    model.sam.vision_encoder.neck.conv1.weight.requires_grad_(True)
    assert model.encode(batch).embeddings.requires_grad


def test_a_batch_of_negatives_has_no_dice_but_trains(reference):
    model, batch = reference.model(), reference.batch("A_square")
    batch = replace(batch, masks=[torch.zeros_like(mask) for mask in batch.masks])
    found = compute_losses(model(batch), batch, weights(reference, "rosalia"))
    assert found["dice"].item() == 0
    found["dice"].backward()
    assert model.project[0].weight.grad.abs().max() == 0


def test_masks_of_another_shape_or_number_are_refused(reference, model):
    batch = reference.batch("A_square")
    output, some = model(batch), weights(reference, "rosalia")
    for wrong in (torch.zeros(2, 128, 128), torch.zeros(1, 64, 64)):
        with pytest.raises(ValueError, match="A_square1: masks of"):
            compute_losses(output, replace(batch, masks=[batch.masks[0], wrong, batch.masks[2]]), some)


@pytest.mark.parametrize("case", ["A_square", "B_nonsquare"])
def test_the_training_of_the_base_computes_what_the_model_computes(reference, model, case):
    """The script that made resources/rosalia reads the common beginning of an image's texts once."""
    spec = importlib.util.spec_from_file_location("train_base", ROOT / "resources/rosalia/train.py")
    train_base = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules), mock.patch.object(sys, "path", list(sys.path)):
        for name in ("data", "films"):  # other nets' scripts have modules of these names
            sys.modules.pop(name, None)
        spec.loader.exec_module(train_base)
    batch = reference.batch(case)
    model_output, script_output = model(batch), train_base.forward(model, batch)
    assert off(script_output.text_logits, model_output.text_logits) < CLOSE
    for script_mask, model_mask in zip(script_output.masks, model_output.masks, strict=True):
        assert off(script_mask, model_mask) < MASKS
