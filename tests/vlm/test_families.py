"""Tiny random models of the real architectures: chat, loss mask, pictures of any size, batches, saving and reading."""

import json
import re

import numpy as np
import pytest
import torch

from cxr.base.engines import engine_names
from cxr.base.errors import UserError
from cxr.instructions.record import Turn
from cxr.vlm.collate import Collator
from cxr.vlm.conventions import CONVENTIONS
from cxr.vlm.families.engine import PARTS, load_family, part_of
from cxr.vlm.models import load_model, make_tiny
from cxr.vlm.samples import Sample, all_texts, parse_sample
from cxr.vlm.tokens import IGNORED, ReservedTokenError, special_tokens
from cxr.vlm.tuning.fit import TextLoss, count_learned

FAMILIES = engine_names("cxr.vlm.families")
LINE = {"query_id": "q1", "image_id": "a", "source": "s", "split": "train", "query": "the small nucleus"}
SAMPLE = parse_sample(LINE | {"boxes": [[1, 2, 30, 400]]})
TURNS = (Turn("Is it normal?", "No."), Turn("Where?", "Here <box:x>."), Turn("Sure?", "Yes."))
TALK = Sample("c1", "a", "s", "train", "talk", TURNS, {"x": [(0.1, 0.2, 0.5, 1.0)]})


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture(scope="module", params=FAMILIES)
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    convention = CONVENTIONS["grid1000"]
    make_tiny(request.param, folder, all_texts([SAMPLE, TALK], convention), 112, 5)
    loaded = load_model(request.param, folder)
    return request.param, folder, loaded, Collator(loaded.family, loaded.tokens, convention)


def test_the_families_are_there():
    assert {"qwen25vl", "qwen3vl", "gemma3", "onevision"} <= set(FAMILIES)


def test_the_loss_is_on_answers_and_their_end_tokens(made):
    _, _, loaded, collator = made
    encoded = collator.encode(TALK, picture(64, 96))
    learned = [one for one in encoded.labels if one != IGNORED]
    told = loaded.tokens.tokenizer.decode(learned)
    end = loaded.family.frame.end
    assert told == f"No.{end}Here [100, 200, 500, 1000].{end}Yes.{end}"
    assert [one for one, label in zip(encoded.ids, encoded.labels, strict=True) if label != IGNORED] == learned


def test_the_published_loss_is_on_the_marks_of_turns_and_line_breaks_too(made):
    """And on what opens an answer, as a whole: the name of the answering role is learned, the others' names are not."""
    _, _, loaded, collator = made
    answers = collator.encode(TALK, picture(64, 96)).labels
    published = Collator(loaded.family, loaded.tokens, collator.convention, marks=True).encode(TALK, picture(64, 96))
    more = [one for one, label in zip(published.labels, answers, strict=True) if one != label]
    assert [one for one, label in zip(published.labels, answers, strict=True) if label != IGNORED] == [
        label for label in answers if label != IGNORED
    ]
    assert loaded.tokens.picture not in published.labels
    told = [loaded.tokens.tokenizer.decode([one]) for one in more]
    frame = loaded.family.frame
    turns = len(TALK.turns)
    pieces = [frame.start, *[frame.user, frame.assistant] * turns, frame.opening, frame.closing]
    wanted = "".join([*pieces, *[frame.between] * (turns - 1)])
    for mark in {"\n", *special_tokens(frame)} - {frame.picture}:
        assert told.count(mark) == wanted.count(mark), mark
    names = {frame.assistant: turns, frame.user: 0, frame.start: 0}  # "assistant" or "model"; "user"; "system", if any
    for opening, number in names.items():
        for name in re.sub(r"<[^<>]+>", " ", opening.partition(frame.system or "\0")[0]).split():
            assert told.count(name) == number, name
    role = re.sub(r"<[^<>]+>", "", frame.assistant).strip()
    assert set(told) == {"\n", role, *special_tokens(frame)} - {frame.picture}


def test_the_prompt_is_a_prefix_of_what_is_learned(made):
    _, _, _, collator = made
    for sample in (SAMPLE, TALK):
        whole = collator.encode(sample, picture(64, 96))
        for turn in range(len(sample.turns)):
            seen = whole.pictures.sizes[0]
            said = [sample.answer(number, collator.convention, seen) for number in range(turn)]
            asked = collator.ask(sample, picture(64, 96), said)
            assert asked.ids == whole.ids[: len(asked.ids)]
            assert whole.labels[len(asked.ids)] != IGNORED


def test_a_picture_of_any_size_has_as_many_tokens_as_features(made):
    _, _, loaded, collator = made
    rng = np.random.default_rng(3)
    for height, width in rng.integers(30, 200, (40, 2)):
        encoded = collator.encode(SAMPLE, picture(int(height), int(width)))
        assert encoded.ids.count(loaded.tokens.picture) == encoded.pictures.tokens[0]
    with torch.no_grad():  # the model raises where they differ
        for size in ((40, 170), (112, 112), (199, 61)):
            batch = collator.batch([collator.encode(SAMPLE, picture(*size))])
            assert loaded.model(**batch.inputs).logits.isfinite().all()


def test_the_picture_is_used(made):
    _, _, loaded, collator = made
    with torch.no_grad():
        one, same, other = (
            loaded.model(**collator.batch([collator.encode(SAMPLE, picture(84, 112, seed))]).inputs).logits[0, -1]
            for seed in (1, 1, 2)
        )
    assert torch.equal(one, same)
    assert not torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("left", [False, True])
def test_a_batch_of_mixed_sizes_equals_one_by_one(made, left):
    _, _, loaded, collator = made
    samples = [(SAMPLE, picture(84, 112, 1)), (TALK, picture(56, 56, 2)), (SAMPLE, picture(112, 70, 3))]
    encoded = [collator.encode(*one) for one in samples]
    with torch.no_grad():
        batch = collator.batch(encoded, left)
        together = loaded.model(**batch.inputs).logits
        for row, one in enumerate(encoded):
            alone = loaded.model(**collator.batch([one]).inputs).logits[0]
            length, longest = len(one.ids), together.shape[1]
            here = together[row, longest - length :] if left else together[row, :length]
            torch.testing.assert_close(here, alone, atol=2e-5, rtol=1e-4)


def test_loss_falls_with_a_step_and_every_part_has_a_gradient(made):
    _, folder, _, collator = made
    name = made[0]
    model = load_model(name, folder).model.train()
    batch = collator.batch([collator.encode(SAMPLE, picture(84, 112, 1)), collator.encode(TALK, picture(56, 84, 2))])
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(4):
        loss = TextLoss().sums(model, batch)["text"] / count_learned(batch.labels)
        loss.backward()
        idle = getattr(collator.family, "idle", ())
        named = {key: value for key, value in model.named_parameters() if not any(mark in key for mark in idle)}
        assert [key for key, value in named.items() if value.grad is None] == []
        assert {part_of(collator.family, key) for key in named} == set(PARTS)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


def test_every_tensor_belongs_to_a_part(made):
    _, _, loaded, collator = made
    assert [name for name, _ in loaded.model.named_parameters() if not part_of(collator.family, name)] == []


def test_saved_and_read_again_it_gives_the_same(made, tmp_path):
    name, _, loaded, collator = made
    loaded.model.save_pretrained(tmp_path)
    loaded.family.processor.save_pretrained(tmp_path)
    loaded.tokens.tokenizer.save_pretrained(tmp_path)
    again = load_model(name, tmp_path)
    batch = collator.batch([collator.encode(SAMPLE, picture(84, 112, 1))])
    with torch.no_grad():
        assert torch.equal(again.model(**batch.inputs).logits, loaded.model(**batch.inputs).logits)


def test_a_model_that_lacks_a_tensor_is_refused(made, tmp_path):
    from safetensors.torch import load_file, save_file

    name, folder, _, _ = made
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop(next(key for key in weights if "mlp" in key and "visual" not in key and "vision" not in key))
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="missing keys"):
        load_model(name, tmp_path)


def test_another_family_is_refused(made):
    name, folder, _, _ = made
    other = next(one for one in FAMILIES if one != name)
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    with pytest.raises(UserError, match=f"holds a model of type {kind}"):
        load_family(other, folder)
    with pytest.raises(UserError, match=r"families\.engine is 'llama'"):
        load_family("llama", folder)


def test_a_text_cannot_speak_as_the_model(made):
    _, _, loaded, _ = made
    for mark in loaded.family.frame.reserved:
        with pytest.raises(ReservedTokenError, match="a special token of the model"):
            loaded.tokens.encode_text(f"cells {mark} ignore this")
