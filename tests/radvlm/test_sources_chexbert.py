"""CheXbert from a file in the published layout, against a forward pass that is written out here."""

import math

import pytest
import torch

import tiny_chexbert
from conversions import converter
from cxr.base.errors import UserError
from cxr.base.tables import read_lines, write_lines
from cxr.radvlm import chexbert
from cxr.radvlm.labels import load_label_names

TEXTS = [
    "The heart is enlarged. No effusion.", "Lungs are clear.", "A small left opacity, pneumonia cannot be excluded.",
    "No effusion", "the left chest tube", "Right chest tubes. " * 12, "unknown words", "lungs\n\n are   clear .",
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The tensors, the converted file and the folder of the BERT's words."""
    folder = tmp_path_factory.mktemp("chexbert")
    held = tiny_chexbert.state()
    target = folder / "chexbert.safetensors"
    facts = converter("chexbert")(tiny_chexbert.save(folder / "chexbert.pth", held), target)
    assert facts["tensors"] == len(held)
    return held, target, tiny_chexbert.words(folder / "bert")


def tokens(text: str) -> list[int]:
    """Word pieces by hand: lower case, the marks apart, at most 24 of them."""
    places = {word: place for place, word in enumerate(tiny_chexbert.WORDS)}
    found = []
    for word in text.lower().replace(".", " . ").replace(",", " , ").split():
        if word in places:
            found.append(places[word])
        elif word.endswith("s") and word[:-1] in places:
            found += [places[word[:-1]], places["##s"]]
        else:
            found.append(places["[UNK]"])
    return [places["[CLS]"], *found[:22], places["[SEP]"]]


def logits(held: dict, ids: list[int]) -> list[torch.Tensor]:
    """The forward pass of one text, in float64, without a batch and without a library's model."""
    w = {name: value.double() for name, value in held.items()}
    heads, wide = tiny_chexbert.SIZES["num_attention_heads"], tiny_chexbert.SIZES["hidden_size"]

    def norm(x, at):
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-12).sqrt() * w[f"{at}.weight"] + w[f"{at}.bias"]

    def linear(x, at):
        return x @ w[f"{at}.weight"].T + w[f"{at}.bias"]

    x = w["bert.embeddings.word_embeddings.weight"][ids]
    x = x + w["bert.embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["bert.embeddings.token_type_embeddings.weight"][0], "bert.embeddings.LayerNorm")
    for layer in range(tiny_chexbert.SIZES["num_hidden_layers"]):
        at = f"bert.encoder.layer.{layer}"
        q, k, v = (linear(x, f"{at}.attention.self.{name}") for name in ("query", "key", "value"))
        parts, size = [], wide // heads
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            parts.append(torch.softmax(q[:, own] @ k[:, own].T / math.sqrt(size), -1) @ v[:, own])
        x = norm(x + linear(torch.cat(parts, -1), f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
        inner = linear(x, f"{at}.intermediate.dense")
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        x = norm(x + linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    return [linear(x[0], f"linear_heads.{head}") for head in range(14)]


def expected(held: dict, text: str) -> dict[str, str]:
    said = [int(one.argmax()) for one in logits(held, tokens(text))]
    values = {1: "present", 2: "absent", 3: "uncertain"}
    found = {name: values[one] for name, one in zip(chexbert.HEADS, said, strict=True) if one}
    return found | {"No Finding": "present" if said[13] == 1 else "absent"}


def test_labels_are_those_of_the_written_out_pass(made):
    held, weights, folder = made
    read = chexbert.load_labeller(weights, str(folder), "")
    found = read(TEXTS)
    assert found == [expected(held, text) for text in TEXTS]
    assert len({str(one) for one in found}) >= 5
    assert {value for one in found for value in one.values()} == {"present", "absent", "uncertain"}
    assert read([]) == []


def test_logits_are_those_of_the_written_out_pass(made):
    held, weights, folder = made
    net = chexbert.load_labeller(weights, str(folder), "").net
    for text in TEXTS:
        ids = torch.tensor([tokens(text)])
        for mine, right in zip(net(ids, torch.ones_like(ids)), logits(held, tokens(text)), strict=True):
            torch.testing.assert_close(mine[0].double(), right, atol=1e-4, rtol=1e-4)


def test_the_heads_are_the_14_labels():
    assert sorted(chexbert.HEADS) == sorted(load_label_names().names)
    assert [head for head in chexbert.HEADS if head != "No Finding"] == [
        name for name in load_label_names().names if name != "No Finding"
    ]


def test_a_shard_has_a_line_for_each_study_with_a_text(made, tmp_path):
    held, weights, folder = made
    lines = [{"study_id": f"s{at}", "section_text": text} for at, text in enumerate([*TEXTS, " ", TEXTS[0]])]
    write_lines(tmp_path / "reports.jsonl", lines[::-1])
    chexbert.label_shard(
        reports=str(tmp_path / "reports.jsonl"), weights=str(weights), labels=str(tmp_path / "labels.jsonl"),
        model=str(folder), revision="",
    )  # fmt: skip
    found = {line["study_id"]: line["labels"] for line in read_lines(tmp_path / "labels.jsonl")}
    assert found == {
        line["study_id"]: expected(held, line["section_text"]) for line in lines if line["section_text"] != " "
    }


def test_other_files_are_refused_in_one_sentence(made, tmp_path):
    held, weights, folder = made
    fewer = {name: value for name, value in held.items() if name != "linear_heads.13.bias"}
    converter("chexbert")(tiny_chexbert.save(tmp_path / "chexbert.pth", fewer), tmp_path / "other.safetensors")
    with pytest.raises(UserError, match=r"do not fit the net \(it lacks linear_heads.13.bias"):
        chexbert.load_labeller(tmp_path / "other.safetensors", str(folder), "")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"radvlm.chexbert.model: .*empty lacks config.json or a tokenizer"):
        chexbert.load_labeller(weights, str(tmp_path / "empty"), "")
