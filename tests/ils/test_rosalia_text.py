"""Prompts and token ids of ROSALIA against those of the original code and its tokenizer."""

import json
import shutil

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from conftest import ROOT
from cxr.base.errors import UserError
from cxr.ils.rosalia import tokens as prompts
from cxr.ils.rosalia.tokens import IGNORED, Tokens, make_word_tokenizer

LLAMA = ROOT / "tests/support/llama_tokenizer"
REFERENCE = json.loads((LLAMA / "reference.json").read_text(encoding="utf-8"))
FRAME = ("Segment the effusion in the right lung base.", "[SEG] It is located in the right lung base.")


@pytest.fixture(scope="module")
def llama() -> Tokens:
    return Tokens.prepare(LLAMA)


@pytest.fixture(scope="module")
def words() -> Tokens:
    return Tokens.prepare(make_word_tokenizer([*FRAME, "There is no edema (yet), the patient's lung."]))


def test_the_prompts_are_the_originals(shared):
    rows = json.loads((shared / "fixtures/lisa_reference/prompts_and_text_metric.json").read_text())["prompts"]
    assert {row["template"] for row in rows} == set(prompts.CONVERSATIONS)
    for row in rows:
        assert prompts.write_prompt(row["instruction"], row["answer"], row["template"]) == row["prompt"]
        if row["answer"]:
            assert prompts.extract_answer(row["prompt"]) == row["answer"]


def test_an_unknown_conversation_is_refused():
    with pytest.raises(ValueError, match="conversation must be one of"):
        prompts.write_prompt("a", None, "vicuna")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("A chat. USER: Segment it. ASSISTANT: [SEG]  It is\nlocated here.</s><unk>", "[SEG] It islocated here."),
        ("[INST] a [/INST] [SEG] </s>", "[SEG]"),
        ("ASSISTANT: one ASSISTANT: two</s>", "two"),
        (" [SEG] There is no edema. </s>", "[SEG] There is no edema."),
        ("never ends", "never ends"),
        ("", ""),
    ],
)
def test_the_answer_is_cut_and_cleaned_as_the_original_does(text, answer):
    assert prompts.extract_answer(text) == answer


@pytest.mark.parametrize("row", REFERENCE["texts"], ids=lambda row: row["prompt"][-30:])
def test_the_ids_are_those_of_the_original_tokenizer(llama, row):
    """The reference holds the ids that transformers 4.31 gives, with the image as -200."""
    assert [-200 if one == llama.image else one for one in llama._ids(row["prompt"])] == row["ids"]
    text = llama.decode([one for one in row["ids"] if one >= 0])
    assert prompts.extract_answer(text) == prompts.extract_answer(row["decoded"])


def test_a_tokenizer_of_today_left_alone_gives_other_ids(llama):
    """The negative control: it keeps the space before [SEG], which LISA's drops."""
    row = REFERENCE["texts"][0]
    plain = llama.tokenizer(row["prompt"]).input_ids
    assert [-200 if one == llama.image else one for one in plain] != row["ids"]
    assert llama.tokenizer.convert_ids_to_tokens(plain[plain.index(llama.seg) - 1]) == "▁"


def test_the_added_tokens_come_in_the_originals_order(llama):
    assert REFERENCE["tokens"] == {"[SEG]": 700, "<im_start>": 701, "<im_end>": 702}
    for token, number in REFERENCE["tokens"].items():
        assert llama.tokenizer.convert_tokens_to_ids(token) == number
    assert (llama.seg, llama.image, llama.pad, llama.bos, llama.eos, len(llama)) == (700, 703, 0, 1, 2, 704)


def test_what_was_saved_is_loaded_and_prepared_again_without_change(llama, tmp_path):
    llama.save(tmp_path / "one")
    again = Tokens.load(tmp_path / "one")
    twice = Tokens.prepare(tmp_path / "one")
    for one in (again, twice):
        assert (one.seg, one.image, one.pad, one.bos, one.eos, len(one)) == (700, 703, 0, 1, 2, 704)
        assert one.encode(*FRAME, "llava_v1", 4, 200)[0].equal(llama.encode(*FRAME, "llava_v1", 4, 200)[0])


def test_a_sentencepiece_model_is_read_or_the_user_is_told_what_is_missing():
    try:
        import sentencepiece  # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match=r"only as tokenizer\.model .*: install sentencepiece"):
            Tokens.prepare(LLAMA / "slow")
    else:
        tokens = Tokens.prepare(LLAMA / "slow")
        for row in REFERENCE["texts"]:
            assert [-200 if one == tokens.image else one for one in tokens._ids(row["prompt"])] == row["ids"]


@pytest.mark.parametrize("conversation", prompts.CONVERSATIONS)
@pytest.mark.parametrize("answer", ["[SEG]", FRAME[1], "It has no mask."])
def test_labels_are_the_answer_and_the_end(llama, conversation, answer):
    ids, labels = llama.encode(FRAME[0], answer, conversation, 256, 1000)
    asked, nothing = llama.encode(FRAME[0], None, conversation, 256, 1000)
    first = len(asked)
    assert (nothing == IGNORED).all()
    assert (labels[:first] == IGNORED).all()
    assert ids[:first].equal(asked)
    assert labels[first:].equal(ids[first:])
    assert (ids == llama.image).sum() == 256
    end = llama.tokenizer.convert_ids_to_tokens(asked[-1].item())
    assert end == {"llava_v1": ":", "llava_llama_2": "]"}[conversation]
    assert ids[-1] == llama.eos


def test_labels_of_one_sentence_by_hand(words):
    """[SEG] is the first token of the answer; the image stands three times for one token of the prompt."""
    ids, labels = words.encode("Segment the lung.", "[SEG] It is located.", "llava_v1", 3, 100)
    names = words.tokenizer.convert_ids_to_tokens(ids.tolist())
    assert names[names.index("<im_start>") :] == [
        "<im_start>", "<image>", "<image>", "<image>", "<im_end>", "▁Segment", "▁the", "▁lung", ".", "▁ASSISTANT", ":",
        "[SEG]", "▁It", "▁is", "▁located", ".", "</s>",
    ]  # fmt: skip
    assert words.tokenizer.convert_ids_to_tokens(labels[labels != IGNORED].tolist()) == names[-6:]
    assert (labels[:-6] == IGNORED).all()


def test_a_text_is_cut_to_the_length_and_a_prompt_never(words):
    ids, labels = words.encode(*FRAME, "llava_v1", 10, 1000)
    for cut in (1, 2, 5):
        short, marks = words.encode(*FRAME, "llava_v1", 10, len(ids) - cut)
        assert short.equal(ids[:-cut])
        assert marks.equal(labels[:-cut])
    prompt = words.encode(FRAME[0], None, "llava_v1", 10, 1000)[0]
    assert words.encode(FRAME[0], None, "llava_v1", 10, 12)[0].equal(prompt)
    assert words.encode(*FRAME, "llava_v1", 10, len(prompt) + 1)[1][-1] == words.seg
    for length in (len(prompt), 12, 3):
        with pytest.raises(UserError, match=f"no room in max_length {length}: raise max_length or shorten"):
            words.encode(*FRAME, "llava_v1", 10, length)


@pytest.mark.parametrize("text", ["<image>", "</s>", "<s>", "<unk>", "<im_end>", "[SEG]"])
def test_an_instruction_with_a_token_of_the_model_is_refused(words, text):
    with pytest.raises(UserError, match="a special token of the model: remove it"):
        words.encode(f"Segment {text} it.", "[SEG]", "llava_v1", 4, 100)
    if text != "[SEG]":
        with pytest.raises(UserError, match="the answer"):
            words.encode("Segment it.", f"[SEG] {text}", "llava_v1", 4, 100)


def test_a_tokenizer_that_puts_a_piece_before_the_token_is_refused(tmp_path):
    """The known trap: "[SEG]" gives [29871, id], and the first of the two is taken for it."""
    vocabulary = dict(zip(("<unk>", "<s>", "</s>", "▁", "ASSISTANT:", "[SEG]", "<image>"), range(7), strict=True))
    for scheme, folder in (("always", tmp_path / "trap"), ("never", tmp_path / "fine")):
        raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        space, cut = pre_tokenizers.Metaspace(prepend_scheme=scheme), pre_tokenizers.Split("▁", "isolated")
        raw.pre_tokenizer = pre_tokenizers.Sequence([space, cut])
        PreTrainedTokenizerFast(
            tokenizer_object=raw, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<unk>"
        ).save_pretrained(str(folder))
    assert AutoTokenizer.from_pretrained(str(tmp_path / "trap"))("[SEG]").input_ids == [3, 5]
    with pytest.raises(UserError, match=r"trap turns '\[SEG\]' into the ids \[3, 5\], but \[SEG\] must be a single id"):
        Tokens.load(tmp_path / "trap")
    assert Tokens.load(tmp_path / "fine").seg == 5
    ids, _ = Tokens.prepare(tmp_path / "trap").encode("a", "[SEG]", "llava_v1", 1, 99)  # once it is an added token
    assert ids[-2:].tolist() == [5, 2]


def test_a_tokenizer_that_splits_the_token_is_refused():
    with pytest.raises(UserError, match=r"turns '\[SEG\]' into the ids .*use the tokenizer") as caught:
        Tokens.load(LLAMA)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_tokenizer_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        Tokens.load(tmp_path / "none")
    shutil.copytree(LLAMA, tmp_path / "bad")
    (tmp_path / "bad/tokenizer.json").write_text('{"version"')
    with pytest.raises(UserError, match=r"holds no readable tokenizer .*: download its files again") as caught:
        Tokens.load(tmp_path / "bad")
    assert "\n" not in str(caught.value)


def test_the_word_tokenizer_is_deterministic_and_loses_nothing(words, tmp_path):
    one, two = (make_word_tokenizer([*texts]).get_vocab() for texts in (FRAME, reversed(FRAME)))
    assert one == two
    assert (one["<unk>"], one["<s>"], one["</s>"]) == (0, 1, 2)
    assert (words.pad, words.bos, words.eos) == (0, 1, 2)
    for answer in (FRAME[1], "[SEG]", "[SEG] There is no edema (yet), the patient's lung."):
        ids, _ = words.encode(FRAME[0], answer, "llava_v1", 5, 1000)
        assert 0 not in ids
        assert prompts.extract_answer(words.decode(ids)) == answer
    assert words.pad in words.encode("Segment the zebra.", None, "llava_v1", 5, 100)[0]
    words.save(tmp_path)
    again = Tokens.load(tmp_path)
    assert torch.equal(again.encode(*FRAME, "llava_v1", 5, 99)[0], words.encode(*FRAME, "llava_v1", 5, 99)[0])
