"""A head of masks: its losses, what it trains, the same bytes after a kill, and the masks of answers."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard, ShardWriter
from cxr.base.tables import read_lines, read_table, write_lines
from cxr.segmentation.encoder_cache import MemoryCache
from cxr.segmentation.published import make_sam_config, to_published_name
from cxr.segmentation.segmenter import Segmenter, make_new_segmenter
from cxr.segmentation.starts import lite, sam
from cxr.vlm.answers import ask as stage
from cxr.vlm.answers import transformers
from cxr.vlm.answers.masks import MaskPredictor
from cxr.vlm.collate import Collator
from cxr.vlm.conventions import find_convention
from cxr.vlm.models import ADAPTERS, MODEL, SEGMENTER, add_seg_token, load_model, load_run, make_tiny
from cxr.vlm.samples import ImageStore, read_samples
from cxr.vlm.segmenting import MaskStore, SegmentingModel, mask_targets
from cxr.vlm.settings import Vlm
from cxr.vlm.tuning import fit
from cxr.vlm.tuning.fit import MaskLoss
from cxr.vlm.tuning.settings import Recipe
from cxr.vlm.tuning.tune import add_adapters, select_trained
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import parse_section
from vlm_masks import FRAME, HEAD, OPTIONS, ask, found, recipe, scenes, tune
from vlm_runs import RECIPE, contents, differing


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return scenes(tmp_path_factory.mktemp("drawn"))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, given):
    return tune(tmp_path_factory.mktemp("tuned"), given, recipe(updates=8))


@pytest.fixture(scope="module")
def learned(tmp_path_factory, given):
    """A model that says the answers, with their [SEG]."""
    return tune(tmp_path_factory.mktemp("learned"), given, recipe(updates=45, batch=10, micro_batch=10))


def begin(folder, given, **changed):
    """Return an untrained model with a head, and the batch of all samples."""
    samples = read_samples(given["lines"])
    texts = [text for row in given["rows"] for turn in row["turns"] for text in turn.values()]
    make_tiny("onevision", folder, texts, 64, 1)
    loaded = add_seg_token(load_model("onevision", folder), 1)
    model = SegmentingModel(loaded.model, lite.load(96, "", 1))
    collator = Collator(loaded.family, loaded.tokens, find_convention("unit"))
    with ImageStore(given["pictures"], 64) as pictures, MaskStore(given["masks"]) as masks:
        encoded = [
            replace(
                collator.encode(one, pictures.get(one)), aims=mask_targets(one, pictures, masks, model.segmenter.side)
            )
            for one in samples
        ]
    return loaded, model, collator.batch(encoded), encoded


def by_hand(model, batch, samples, given):
    """Return the three losses by plain loops: one sample, one [SEG], one pixel row after another."""
    text = tokens = bce = dice = masks = positives = 0.0
    side = model.segmenter.side
    held = {}
    with Shard(given["masks"][0], key="mask_id") as shard:
        held = {name: shard.get("mask", name) for name in shard.ids}
    with torch.no_grad():
        out = model.model(**batch.inputs, output_hidden_states=True)
    for row, sample in enumerate(samples):
        ids, labels = batch.inputs["input_ids"][row].tolist(), batch.labels[row].tolist()
        marks = []
        for at in range(1, len(ids)):
            if labels[at] != -100:
                logits = out.logits[row, at - 1].double()
                text -= float(logits[labels[at]] - torch.logsumexp(logits, 0))
                tokens += 1
                marks += [at] if labels[at] == model_seg(model) else []
        assert len(marks) == len(sample["mask_ids"])
        for at, mask_id in zip(marks, sample["mask_ids"], strict=True):
            levels = batch.segs.levels[batch.segs.views.index(batch.segs.views[int(sample["image_id"][1:])])]
            pixels = torch.stack(
                [
                    (levels.double() - mean) / std
                    for mean, std in zip((123.675, 116.28, 103.53), (58.395, 57.12, 57.375), strict=True)
                ]
            ).float()
            with torch.no_grad():
                seen = model.segmenter.sam.vision_encoder(pixels[None]).last_hidden_state
                state = out.hidden_states[-1][row, at - 1]
                first, second = model.segmenter.project[0], model.segmenter.project[2]
                prompt = second.weight @ torch.relu(first.weight @ state + first.bias) + second.bias
                drawn = model.segmenter.sam.mask_decoder(
                    image_embeddings=seen,
                    image_positional_embeddings=model.segmenter.sam.get_image_wide_positional_embeddings(),
                    sparse_prompt_embeddings=prompt[None, None, None],
                    dense_prompt_embeddings=model.segmenter.sam.prompt_encoder.no_mask_embed.weight[:, :, None, None],
                    multimask_output=False,
                )[0][:, 0]
                drawn = torch.nn.functional.interpolate(drawn, (side, side), mode="bilinear")[0, 0].double()
            step = FRAME // side
            target = held[mask_id][step // 2 :: step, step // 2 :: step] if mask_id else np.zeros((side, side), bool)
            target = torch.from_numpy(target).double()
            chance = torch.sigmoid(drawn)
            for wanted, said in zip(target, drawn, strict=True):
                bce += (
                    float((torch.clamp(said, min=0) - said * wanted + torch.log1p(torch.exp(-said.abs()))).sum())
                    / side**2
                )
            masks += 1
            if target.any():
                dice += float(1 - (2 * (chance * target).sum() + 1e-3) / (chance.sum() + target.sum() + 1e-3))
                positives += 1
    return text / tokens, bce / masks, dice / positives


def model_seg(model) -> int:
    return model.model.get_input_embeddings().num_embeddings - 1  # added last


def test_the_losses_are_those_of_plain_loops(given, tmp_path):
    _, model, batch, _ = begin(tmp_path / "m", given)
    model.eval()
    objective = MaskLoss()
    sums = objective.sums(model, batch)
    got = [
        float(sums[name].detach()) / count for name, count in zip(objective.names, objective.counts(batch), strict=True)
    ]
    assert got == pytest.approx(by_hand(model, batch, given["rows"], given), rel=1e-5, abs=1e-5)
    assert objective.counts(batch)[1:] == [10, 8]
    assert objective.weights == (1.0, 5.0, 1.0)


def test_each_seg_has_its_place_and_its_mask_in_order(given, tmp_path):
    loaded, model, batch, encoded = begin(tmp_path / "m", given)
    segs, seg = batch.segs, loaded.tokens.seg
    assert [batch.inputs["input_ids"][row, place] for row, place in zip(segs.rows, segs.places, strict=True)] == [
        seg
    ] * 10
    assert [batch.sample_ids[row] for row in segs.rows] == [
        f"s{at}{name}" for at in range(2) for name in ("bright", "dark", "none", "both", "both")
    ]
    assert segs.image_of.tolist() == [0] * 5 + [1] * 5
    areas = segs.masks.flatten(1).sum(1).tolist()
    assert areas[2] == areas[7] == 0
    assert torch.equal(segs.masks[0], segs.masks[3])
    assert torch.equal(segs.masks[1], segs.masks[4])
    assert not torch.equal(segs.masks[0], segs.masks[1])
    text = loaded.tokens.tokenizer.decode(encoded[3].ids)
    assert text.endswith("The bright one [SEG] and the dark one [SEG].<|im_end|>")
    assert segs.levels.shape == (2, model.segmenter.side, model.segmenter.side)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_gradients_reach_what_is_trained_and_nothing_else(given, tmp_path, method):
    loaded, model, batch, _ = begin(tmp_path / "m", given)
    plan = Recipe.from_dict(RECIPE | {"method": method})
    if method == "lora":
        model.model = add_adapters(model.model, loaded.family, plan.lora, loaded.tokens.seg)
    trained = select_trained(model, loaded.family, plan)
    model.train()
    sums = MaskLoss().sums(model, batch)
    sum(sums[name] for name in MaskLoss.names).backward()
    moved = {name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()}
    assert moved <= trained.keys()
    frozen = ("segmenter.sam.vision_encoder.", "segmenter.sam.prompt_encoder.", "segmenter.sam.shared_image_embedding.")
    assert not [name for name in trained if name.startswith(frozen)]
    assert {
        "segmenter.project.0.weight",
        "segmenter.project.2.bias",
        "segmenter.sam.mask_decoder.mask_tokens.weight",
    } <= moved
    rows = {name for name in moved if "trainable_tokens_" in name}
    assert len(rows) == (2 if method == "lora" else 0)  # of [SEG], in the embedding and in the head
    language = {name for name in moved if name.startswith("model.")}
    assert language
    assert all(("lora_" in name or name in rows) == (method == "lora") for name in language)


def test_a_batch_without_seg_gives_zero_gradients_in_the_same_order(given, tmp_path):
    loaded, model, _, encoded = begin(tmp_path / "m", given)
    select_trained(model, loaded.family, Recipe.from_dict(RECIPE))
    batch = Collator(loaded.family, loaded.tokens, find_convention("unit")).batch([encoded[4]])
    sums = MaskLoss().sums(model, batch)
    assert MaskLoss().counts(batch)[1:] == [0, 0]
    assert [float(sums[name].detach()) for name in ("bce", "dice")] == [0, 0]
    sum(sums.values()).backward()
    assert not model.segmenter.project[0].weight.grad.any()


def test_a_picture_is_encoded_once(given, tmp_path, monkeypatch):
    seen, original = [], Segmenter.embed
    monkeypatch.setattr(Segmenter, "embed", lambda self, levels: seen.extend(levels) or original(self, levels))
    runs = [tune(tmp_path / str(kept), given, recipe(epochs=2), keep_features=kept) for kept in (False, True)]
    assert len(seen) == 4  # two pictures, each of two runs
    assert contents(runs[0]) == contents(runs[1])


def test_what_was_needed_last_stays_in_memory():
    kept, made = MemoryCache(max_bytes=3 * 8), []

    def encode(pixels):
        made.extend(pixels.tolist())
        return pixels.double()[:, None]

    for names in ("ab", "ca", "da", "a", "b"):
        views = [(name, False) for name in names]
        values = kept.get(views, torch.tensor([ord(name) for name in names]), encode)
        assert values[:, 0].tolist() == [ord(name) for name in names]
    assert "".join(map(chr, made)) == "abcdb"


@pytest.mark.parametrize("killed", [1, 4])
def test_killed_and_resumed_it_gives_the_same_bytes(given, tuned, tmp_path, monkeypatch, killed):
    original, seen = fit.TuningLoop._update, []

    def update(self, number, *rest):
        seen.append(number)
        if number == killed and seen.count(killed) == 1:
            raise KeyboardInterrupt
        return original(self, number, *rest)

    monkeypatch.setattr(fit.TuningLoop, "_update", update)
    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path, given, recipe(updates=8), keep_features=True)
    assert contents(tune(tmp_path, given, recipe(updates=8), keep_features=True)) == contents(tuned)
    assert seen[killed + 1] == killed - killed % 2
    assert (tmp_path / "updates.tsv").read_bytes() == (tuned.parent / "updates.tsv").read_bytes()


def test_micro_batches_do_not_change_the_losses(given, tmp_path):
    tables = [
        read_table(
            tune(tmp_path / str(size), given, recipe(batch=10, micro_batch=size, updates=2)).parent / "updates.tsv"
        )
        for size in (10, 2)
    ]
    for name in ("loss", "text", "bce", "dice"):
        np.testing.assert_allclose(tables[1][name].to_numpy(), tables[0][name].to_numpy(), rtol=1e-4)
        np.testing.assert_allclose(tables[1][name][0], tables[0][name][0], rtol=1e-5)
    assert tables[1]["masks"].to_list() == tables[0]["masks"].to_list() == [10, 10]
    first = {name: tables[0][name][0] for name in ("loss", "text", "bce", "dice")}
    assert first["loss"] == pytest.approx(first["text"] + 5 * first["bce"] + first["dice"])


@pytest.mark.slow
def test_masks_and_texts_do_not_depend_on_the_batch(given, learned, tmp_path):
    first, *others = [ask(tmp_path / f"{size}.jsonl", given, learned, batch=size) for size in (1, 3, 64)]
    drawn = found(*first)
    for answers, masks in others:
        assert not differing(first[0], answers)  # it has learned them by heart
        for name, other_masks in found(answers, masks).items():
            for one, other in zip(drawn[name], other_masks, strict=True):
                assert (one != other).mean() < 1e-3
    texts = {f"{line['sample_id']}/{line['turn']}": line["text"] for line in read_lines(first[0])}
    assert texts["s0both/1"] == "The bright one [SEG] and the dark one [SEG]."
    assert {len(masks) for name, masks in drawn.items() if name.endswith("both/1")} == {2}
    assert {len(masks) for name, masks in drawn.items() if "text" in name or name.endswith("both/0")} == {0}
    assert all(mask.shape == (FRAME, FRAME) and mask.dtype == bool for masks in drawn.values() for mask in masks)
    with Shard(first[1], key="mask_key") as shard:
        assert len(shard) == sum(map(len, drawn.values()))
        assert shard.attrs["masks"].startswith("one for each [SEG]")


@pytest.mark.slow
def test_a_mask_is_that_of_the_state_before_its_seg(given, learned, tmp_path):
    """The whole conversation, read at once, gives what was caught token by token."""
    answers, masks = ask(tmp_path / "a.jsonl", given, learned)
    drawn = found(answers, masks)
    loaded, segmenter = load_run(learned), Segmenter.load(learned / SEGMENTER)
    collator = Collator(loaded.family, loaded.tokens, find_convention("unit"))
    sample = next(one for one in read_samples(given["lines"]) if one.sample_id == "s1both")
    said = [line["text"] for line in read_lines(answers) if line["sample_id"] == "s1both"]
    told = [replace(turn, answer=text) for turn, text in zip(sample.turns, said, strict=True)]
    sample = replace(sample, turns=tuple(told))
    with ImageStore(given["pictures"], 64) as pictures:
        one = collator.encode(sample, pictures.get(sample))
        frame = pictures.frame(sample)
    with torch.no_grad():
        out = loaded.model(**collator.batch([one]).inputs, output_hidden_states=True)
    states = [out.hidden_states[-1][0, at - 1] for at, token in enumerate(one.ids) if token == loaded.tokens.seg]
    wanted = MaskPredictor(segmenter, torch.device("cpu")).logits("v", frame, states) > 0
    assert (np.stack(drawn["s1both/1"]) == wanted).mean() > 0.9999


def test_answers_that_are_killed_go_on(given, learned, tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "PART_SIZE", 4)
    whole = ask(tmp_path / "whole.jsonl", given, learned)
    original, asked = transformers.Transformers.answer, []

    def answer(self, questions):
        asked.append(len(questions))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return original(self, questions)

    monkeypatch.setattr(transformers.Transformers, "answer", answer)
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path / "killed.jsonl", given, learned)
    again = ask(tmp_path / "killed.jsonl", given, learned)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in whole]


def test_no_seg_at_all_is_a_shard_of_no_masks(given, learned, tmp_path):
    write_lines(tmp_path / "lines.jsonl", [row for row in given["rows"] if row["task"] == "classification"])
    _, masks = ask(tmp_path / "a.jsonl", given | {"lines": str(tmp_path / "lines.jsonl")}, learned)
    with Shard(masks, key="mask_key") as shard:
        assert (len(shard), shard.shape("mask")) == (0, (FRAME, FRAME))


def test_adapters_carry_the_new_token_and_the_head(given, learned, tmp_path):
    base = tmp_path / "base"
    make_tiny("onevision", base, ["Segment the bright dark thing. It is There What things."], 64, 1)
    before = contents(base)
    options = recipe(method="lora", updates=4)
    runs = [tune(tmp_path / name, given, options, str(base)) for name in ("one", "two")]
    assert contents(base) == before
    assert contents(runs[0]) == contents(runs[1])
    held = load_file(runs[0] / ADAPTERS / "adapter_model.safetensors")
    rows = {name: value.shape for name, value in held.items() if "lora_" not in name}
    assert set(rows.values()) == {(1, 96)}
    assert len(rows) == 2
    loaded = load_run(runs[0])
    assert loaded.model.get_base_model().get_input_embeddings().weight.shape[0] == loaded.tokens.seg + 1
    found(*ask(tmp_path / "a.jsonl", given, runs[0]))


def test_a_head_that_lacks_a_tensor_is_refused(given, learned, tmp_path):
    path = tmp_path / SEGMENTER / "segmenter.safetensors"
    Segmenter.load(learned / SEGMENTER).save(tmp_path / SEGMENTER)
    held = load_file(path)
    del held["project.2.bias"]
    save_file(held, path, {"format": "pt"})
    with pytest.raises(UserError, match=r"holds weights that do not fit the model \(.*project\.2\.bias"):
        Segmenter.load(tmp_path / SEGMENTER)
    told = tmp_path / SEGMENTER / "config.json"
    told.write_text(json.dumps({"kind": "rosalia"}))
    with pytest.raises(UserError, match="is not the config of a segmenter: rerun the tuning that wrote it"):
        Segmenter.load(tmp_path / SEGMENTER)


def test_what_has_no_mask_is_a_row(given, tmp_path):
    first = given["rows"][0]
    odd = [
        first | {"sample_id": "absent", "mask_ids": ["m9bright"]},
        first | {"sample_id": "fewer", "mask_ids": []},
        given["rows"][4] | {"sample_id": "more", "mask_ids": ["m0bright"]},
        first | {"sample_id": "asks", "turns": [{"question": "Is [SEG] a mask?", "answer": "[SEG]"}]},
    ]
    write_lines(tmp_path / "lines.jsonl", [*given["rows"], *odd])
    run = tune(tmp_path, given | {"lines": str(tmp_path / "lines.jsonl")}, recipe(updates=1))
    gone = {row["sample_id"]: row["reason"] for row in read_table(run.parent / "left_out.parquet").to_dicts()}
    assert gone == {"absent": "no_mask", "fewer": "no_mask", "more": "no_mask", "asks": "reserved"}
    write_lines(tmp_path / "odd.jsonl", odd[:1])
    with pytest.raises(UserError, match=r"has no sample with a mask for every .SEG.: make masks and samples of the"):
        tune(tmp_path / "none", given | {"lines": str(tmp_path / "odd.jsonl")})


def test_a_published_sam_is_read_by_its_own_names(given, tmp_path):
    config = make_sam_config(64, 8, 32, 2, 2, 4, (1,), out=32, decoder_heads=8, decoder_mlp=64, iou_hidden=32)
    made = make_new_segmenter(config, 96, 1)
    torch.manual_seed(2)
    tensors = {name: torch.randn_like(value) * 0.02 for name, value in made.sam.state_dict().items()}
    path = tmp_path / "sam.safetensors"
    save_file({to_published_name(name): value for name, value in tensors.items()}, path, {"format": "pt"})
    found_ = sam.load(96, str(path), 1)
    assert all(torch.equal(value, tensors[name]) for name, value in found_.sam.state_dict().items())
    assert torch.equal(found_.project[0].weight, made.project[0].weight)
    assert not torch.equal(sam.load(96, str(path), 2).project[0].weight, made.project[0].weight)
    options = replace(OPTIONS, head=HEAD | {"start": "sam"})
    run = tune(tmp_path / "run", given | {"sam": str(path)}, recipe(options, updates=1))
    after = Segmenter.load(run / SEGMENTER).sam.state_dict()
    changed = {name.split(".")[0] for name, value in after.items() if not torch.equal(value, tensors[name])}
    assert changed == {"mask_decoder"}
    del tensors["mask_decoder.mask_tokens.weight"]
    save_file({to_published_name(name): value for name, value in tensors.items()}, path, {"format": "pt"})
    with pytest.raises(UserError, match=r"holds weights that do not fit the model \(.*mask_decoder\.mask_tokens"):
        sam.load(96, str(path), 1)


def test_sam_sees_the_frame_and_the_model_the_part_that_is_not_padded(tmp_path):
    frame = np.zeros((64, 64), np.uint8)
    frame[:, 16:48] = 200
    with ShardWriter(tmp_path / "own" / "00.h5", pictures=("image",)) as writer:
        affine = np.array([[1.0, 0, -16], [0, 1, 0]])
        writer.append("i", image=frame, to_original=affine, original_shape=np.array((64, 32), np.int32))
    with ShardWriter(tmp_path / "more" / "00.h5") as writer:
        writer.append("j", picture=np.full((40, 20, 3), 9, np.uint8))
    line = {"split": "train", "task": "t", "turns": [{"question": "q", "answer": "[SEG]"}], "mask_ids": [""]}
    write_lines(tmp_path / "lines.jsonl", [
        line | {"sample_id": "a", "image_id": "i", "source": "own"},
        line | {"sample_id": "b", "image_id": "j", "source": "more"},
    ])  # fmt: skip
    one, two = read_samples(tmp_path / "lines.jsonl")
    shards = [tmp_path / "own/00.h5", tmp_path / "more/00.h5"]
    with ImageStore(shards) as pictures, MaskStore([]) as masks:
        assert pictures.get(one).shape == (64, 32, 3)
        assert torch.equal(mask_targets(one, pictures, masks, 64).levels, torch.from_numpy(frame))
        levels = mask_targets(two, pictures, masks, 40).levels
    assert (levels[:, 10:30] == 9).all()
    assert not levels[:, :10].any()
    assert not levels[:, 30:].any()


@pytest.mark.parametrize(
    ("run", "answers", "sentence"),
    [
        ({"engine": "tiny"}, {}, "the engine tiny has no head: set engine to onevision or onevision_tiny, or"),
        ({"lines": "medground:dataset"}, {}, "lines is 'medground:dataset', and only a mix of RadVLM has masks"),
        ({}, {"engine": "vllm"}, "vlm.answers.engine is 'vllm', which gives no masks: set that to transformers"),
    ],
)
def test_a_head_that_cannot_be_is_one_sentence(run, answers, sentence):
    run = {"engine": "onevision_tiny", "lines": "radvlm:all", "segmentation": "head"} | run
    settings = parse_section(Vlm, {"tuning": {"runs": {"mine": run}}, "answers": answers | {"sets": {}}})
    with pytest.raises(UserError, match=f"vlm.tuning.runs.mine.segmentation is 'head', but {sentence}"):
        VlmPlan(settings, "cpu", 0, ["all"])


def test_a_run_that_is_not_trained_has_no_head():
    run = {"engine": "onevision", "lines": "radvlm:all", "model": ".", "trained": False, "segmentation": "head"}
    with pytest.raises(ValueError, match="segmentation is 'head', but trained is false: set trained: true"):
        parse_section(Vlm, {"tuning": {"runs": {"mine": run}}})


def test_a_run_without_a_head_is_as_before(given, tmp_path):
    run = tune(tmp_path, given, replace(recipe(updates=1), head={}))
    assert sorted(path.name for path in run.iterdir()) == [MODEL, "run.json"]
    row = read_table(tmp_path / "updates.tsv").to_dicts()[0]
    assert row["loss"] == row["text"]
    assert not any(row[name] for name in ("bce", "dice", "masks", "positives"))


@pytest.mark.slow
def test_it_learns_which_mask_is_asked(given, tmp_path):
    run = tune(tmp_path, given, recipe(updates=400, batch=10, micro_batch=10), checkpoint_every=1000)
    drawn = found(*ask(tmp_path / "a.jsonl", given, run))
    with Shard(given["masks"][0], key="mask_id") as shard:
        true = {name: shard.get("mask", name) for name in shard.ids}

    def iou(name: str, mask_id: str, number: int = 0) -> float:
        mask = drawn[name][number]
        return (mask & true[mask_id]).sum() / (mask | true[mask_id]).sum()

    for at in range(2):
        for number, (one, other) in enumerate((("bright", "dark"), ("dark", "bright"))):
            assert iou(f"s{at}{one}/0", f"m{at}{one}") > 0.9
            assert iou(f"s{at}both/1", f"m{at}{one}", number) > 0.9
            assert iou(f"s{at}{one}/0", f"m{at}{other}") < 0.05  # the instruction tells which
        # and the picture where: the dark things of the two lie in nearly one place
        assert iou(f"s{at}bright/0", f"m{1 - at}bright") < 0.5
        assert not drawn[f"s{at}none/0"][0].any()
