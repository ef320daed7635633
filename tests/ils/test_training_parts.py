"""The trained parts of a model, adapters, and the scores that choose the best epoch."""

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlavaConfig

import rosalia_pairs
from cxr.ils.rosalia.config import CLIP_L14, RosaliaConfig
from cxr.ils.rosalia.lite import make_lite
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.samples import Batch, Pairs, collate
from cxr.ils.training import train
from cxr.ils.training.fit import LossWeights, compute_losses, score_pairs
from cxr.ils.training.settings import LoraSettings
from cxr.ils.training.train import add_adapters, merge_adapters, select_trained
from cxr.metrics.masks import PAIR_METRICS, lisa_iou, overlap_packed
from cxr.nets.fitting.plain import Runner
from cxr.segmentation.published import make_sam_vit_h_config
from training_runs import NAMED, SIZES, options

LORA = LoraSettings(rank=4, alpha=8, dropout=0.0)
ALONE = SimpleNamespace(rank=0, ranks=1, sum=lambda values: values)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Pairs:
    return rosalia_pairs.pairs(rosalia_pairs.write(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def batch(pairs) -> Batch:
    return collate([pairs[row] for row in range(0, 16, 2)], pairs.tokens.pad).to("cpu")


def fresh() -> Rosalia:
    return make_lite(SimpleNamespace(**SIZES), rosalia_pairs.tokens(), 1)


def learn(model: Rosalia, batch: Batch, updates: int = 4) -> Runner:
    """Train the model for a few updates with the paper's trainable set."""
    recipe = options({"lora": {"rank": 4}, "trained": NAMED}).recipe
    trained = train.select_trained(model, recipe.trained)
    runner = Runner(model, trained, train.make_optimiser(trained, recipe), recipe, torch.device("cpu"), timedelta())
    model.train()
    for _ in range(updates):
        losses = runner.forward(lambda model: compute_losses(model(batch), batch, LossWeights(0.5, 5.0, 1.0)))
        runner.backward(losses["loss"], 1, True)
        runner.take_step(1e-2)
    model.eval()
    return runner


def test_adapters_change_nothing_at_the_start(batch):
    model = fresh().eval()
    with torch.no_grad():
        before = model(batch, all_logits=True)
        assert add_adapters(model, LORA) is not None
        after = model.eval()(batch, all_logits=True)
    assert torch.equal(before.logits, after.logits)
    assert torch.equal(before.low_res, after.low_res)


def test_no_adapters_for_rank_0(batch):
    model = fresh()
    names = list(model.state_dict())
    assert add_adapters(model, LoraSettings(rank=0, alpha=8, dropout=0.5)) is None
    merge_adapters(model, None)
    assert list(model.state_dict()) == names


def test_every_linear_layer_of_the_language_model_and_its_head_has_one():
    model = fresh()
    add_adapters(model, LORA)
    layers = {name.partition(".lora_A")[0] for name, _ in model.named_parameters() if ".lora_A" in name}
    block = "llava.model.language_model.layers.0."
    attention = {f"{block}self_attn.{name}_proj" for name in "qkvo"}
    assert layers == attention | {f"{block}mlp.{name}_proj" for name in ("gate", "up", "down")} | {"llava.lm_head"}


def test_only_adapters_and_named_parts_change(batch):
    model = fresh()
    add_adapters(model, LORA)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    runner = learn(model, batch)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    begins = ("llava.lm_head.", "llava.model.language_model.embed_tokens.", "project.", "sam.mask_decoder.")
    assert changed <= set(runner.parameters)
    assert {name for name in before if "lora_" in name} <= changed
    # the head has its adapter and is itself trained
    assert {f"llava.lm_head.{part}" for part in ("base_layer.weight", "lora_A.default.weight")} <= changed
    for begin in begins:
        assert any(name.startswith(begin) for name in changed), begin
    for name in changed:
        assert "lora_" in name or name.startswith(begins), name
    frozen = {name for name, value in model.named_parameters() if not value.requires_grad}
    assert frozen.isdisjoint(runner.parameters)
    for begin in ("sam.vision_encoder.", "sam.prompt_encoder.", "llava.model.vision_tower.",
                  "llava.model.multi_modal_projector.", f"llava.{train.LANGUAGE_MODEL}.layers."):  # fmt: skip
        assert any(name.startswith(begin) for name in frozen), begin


@pytest.mark.parametrize("name", train.PARTS)
def test_each_part_can_be_trained_alone(name):
    model = fresh()
    chosen = select_trained(model, [name])
    assert chosen
    assert all(each.startswith(train.PARTS[name]) for each in chosen)
    own = {each for each, _ in model.named_parameters() if each.startswith(train.PARTS[name])}
    assert set(chosen) == own


def test_parts_are_all_of_the_model():
    model = fresh()
    left = {name for name, _ in model.named_parameters()} - set(select_trained(model, list(train.PARTS)))
    assert left == {"sam.shared_image_embedding.positional_embedding"}  # SAM's positions, which never are


def test_merged_saved_and_read_again_it_draws_the_same(batch, tmp_path):
    model = fresh()
    adapters = add_adapters(model, LORA)
    names = set(fresh().state_dict())
    learn(model, batch, 8)
    with torch.no_grad():
        before, drawn = model(batch, all_logits=True), model.segment(batch)
        bare = [value for name, value in model.named_parameters() if "lora_B" in name]
        assert all(value.abs().max() > 1e-3 for value in bare)
    merge_adapters(model, adapters)
    assert set(model.state_dict()) == names
    model.save_pretrained(tmp_path)
    again = Rosalia.from_pretrained(tmp_path)
    with torch.no_grad():
        after, redrawn = again(batch, all_logits=True), again.segment(batch)
    torch.testing.assert_close(after.logits, before.logits, rtol=0, atol=1e-5)
    assert any(mask.gt(0).any() and mask.le(0).any() for mask in drawn)
    for one, other in zip(drawn, redrawn, strict=True):
        assert ((one > 0) != (other > 0)).float().mean() < 1e-3  # merging rounds
    # and the adapters matter: without them it is another model
    name = "llava.model.language_model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(again.state_dict()[name], fresh().state_dict()[name])


def test_numbers_of_parameters_at_full_size():
    """LISA-7B and SAM-H with the paper's adapters, by the arithmetic of its layers; no weight is made."""
    vocabulary, hidden, wide, rank = 32_004, 4096, 11_008, 128
    text = LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=wide, num_hidden_layers=32, num_attention_heads=32
    )
    llava = LlavaConfig(
        vision_config=CLIP_L14, text_config=text, image_token_index=vocabulary, projector_hidden_act="linear"
    )
    with torch.device("meta"):
        model = Rosalia(RosaliaConfig(llava, make_sam_vit_h_config(), 32_003))
        add_adapters(model, LoraSettings(rank=rank, alpha=256, dropout=0.05))
    chosen = {name: value.numel() for name, value in select_trained(model, NAMED).items()}

    def count(*words: str) -> int:
        return sum(number for name, number in chosen.items() if all(word in name for word in words))

    layer = 4 * rank * 2 * hidden + 3 * rank * (hidden + wide)
    assert count("lora_", ".layers.") == 32 * layer == 319_815_680
    assert count("lora_", "lm_head") == rank * (hidden + vocabulary) == 4_620_800
    assert count("lm_head.base_layer") == count("embed_tokens") == vocabulary * hidden
    assert count("project.") == hidden * hidden + hidden + hidden * 256 + 256
    assert sum(chosen.values()) == sum(
        (32 * layer, rank * (hidden + vocabulary), 2 * vocabulary * hidden, count("project."), count("mask_decoder"))
    )
    assert 4.0e6 < count("mask_decoder") < 4.1e6  # SAM's decoder, 4.06 million


class Drawn(torch.nn.Module):
    """A model that draws given masks, in the order of the pairs."""

    def __init__(self, masks: list[np.ndarray]):
        super().__init__()
        self.sam = torch.nn.Linear(1, 1)
        self.masks = iter(masks)

    def segment(self, batch: Batch) -> list[torch.Tensor]:
        return [torch.from_numpy(next(self.masks).astype(np.float32)) - 0.5 for _ in batch.pair_ids]


def expected(masks: list[np.ndarray], references: list[np.ndarray]) -> tuple:
    """gIoU, cIoU and N-Acc as the stage evaluation computes them."""
    packed = [
        (np.packbits(one, axis=-1), np.packbits(two, axis=-1)) for one, two in zip(masks, references, strict=True)
    ]
    both, either = np.array([overlap_packed(*each) for each in packed]).T
    positive = np.array([reference.any() for reference in references])
    columns = (lisa_iou(both, either), both, either)
    polarity = {"positive": positive, "negative": ~positive}
    return tuple(
        metric.score(*(column[polarity[metric.polarity]] for column in columns)) for metric in PAIR_METRICS.values()
    )


@pytest.mark.parametrize("size", [1, 3, 64])
def test_scores_are_those_of_evaluation(pairs, size):
    rng = np.random.default_rng(7)
    references = [pairs[row].mask.astype(bool) for row in range(len(pairs))]
    masks = []
    for number, reference in enumerate(references):  # near it, far from it, empty and full
        noise = rng.random(reference.shape) < 0.1
        masks.append([reference ^ noise, noise, np.zeros_like(reference), ~np.zeros_like(reference)][number % 4])
    found = score_pairs(Drawn(masks), pairs, size, 0, ALONE, torch.device("cpu"))
    np.testing.assert_allclose((found.giou, found.ciou, found.n_acc), expected(masks, references), rtol=1e-6)
    assert 0.05 < found.giou < 0.9
    assert 0.1 < found.n_acc < 0.9


def test_scores_of_a_real_model_are_those_of_its_masks(pairs, batch):
    model = fresh()
    learn(model, batch)
    model.eval()
    masks, references = [], []
    for row in range(len(pairs)):
        one = collate([pairs[row]], pairs.tokens.pad).to("cpu")
        masks.append((model.segment(one)[0] > 0).numpy())
        references.append(one.masks[0][0].numpy() > 0)
    found = score_pairs(model, pairs, 5, 0, ALONE, torch.device("cpu"))
    np.testing.assert_allclose((found.giou, found.ciou, found.n_acc), expected(masks, references), rtol=1e-3)


def test_processes_share_the_pairs(pairs):
    """Each takes its batches, and their sums are one process's."""
    references = [pairs[row].mask.astype(bool) for row in range(len(pairs))]
    whole = score_pairs(Drawn(references), pairs, 4, 0, ALONE, torch.device("cpu"))
    sums = []
    for rank in range(3):
        mine = [mask for row, mask in enumerate(references) if row // 4 % 3 == rank]
        ranks = SimpleNamespace(rank=rank, ranks=3, sum=lambda values: sums.append(values) or values)
        score_pairs(Drawn(mine), pairs, 4, 0, ranks, torch.device("cpu"))
    assert sum(sums)[[3, 5]].tolist() == [7, 12]
    giou, ciou, n_acc = whole.giou, whole.ciou, whole.n_acc
    total = sum(sums)
    np.testing.assert_allclose([total[0] / total[3], total[1] / total[2], total[4] / total[5]], [giou, ciou, n_acc])


def test_scores_of_nothing_are_no_number(tmp_path):
    given = rosalia_pairs.write(tmp_path)
    path = Path(given["lines"])
    path.write_text("\n".join(line for line in path.read_text().splitlines() if '"seg": false' in line))
    some = rosalia_pairs.pairs(given)
    found = score_pairs(Drawn([np.zeros((64, 64), bool)] * len(some)), some, 4, 0, ALONE, torch.device("cpu"))
    assert np.isnan([found.giou, found.ciou]).all()
    assert found.n_acc == 1
