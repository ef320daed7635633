"""Write prompts as in LISA, and convert texts to the token ids of LISA's tokenizer (transformers 4.31, slow Llama).

LISA's tokenizer drops white space next to the tokens that LISA added. Later versions of transformers keep the white
space, which would shift the token of the mask. So this module first splits a text at the added tokens.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AddedToken, AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from cxr.base.errors import UserError, refuse_unreadable

SEG = "[SEG]"  # the token that requests a mask
IMAGE_START, IMAGE, IMAGE_END = "<im_start>", "<image>", "<im_end>"
END = "</s>"
CONVERSATIONS = ("llava_v1", "llava_llama_2")  # names of LISA's two conversation templates
ANSWER_AFTER = {"llava_v1": "ASSISTANT:", "llava_llama_2": "[/INST]"}
"""{conversation template: text right before an answer}. A prompt without an answer ends with this text."""
SYSTEMS = {
    "llava_v1": (
        "A chat between a curious human and an artificial intelligence assistant. "
        "The assistant gives helpful, detailed, and polite answers to the human's questions."
    ),
    "llava_llama_2": (
        "You are a helpful language and vision assistant. "
        "You are able to understand the visual content that the user provides, "
        "and assist the user with a variety of tasks using natural language."
    ),
}
IGNORED = -100  # label of a token that the loss ignores
UNKNOWN, BEGIN = "<unk>", "<s>"
_ADDED = (SEG, IMAGE_START, IMAGE_END)
_MARKS = (*_ADDED, IMAGE, END)
_CUT = re.compile("(" + "|".join(map(re.escape, _MARKS)) + ")")
_RESERVED = (*_MARKS, BEGIN, UNKNOWN)


def write_prompt(instruction: str, answer: str | None, conversation: str) -> str:
    """Return an instruction as a prompt in LISA's template ``conversation``, followed by the answer if there is one."""
    user_message = f"{IMAGE_START}{IMAGE}{IMAGE_END}\n{instruction}"
    if conversation == "llava_v1":
        text = f"{SYSTEMS[conversation]} USER: {user_message} ASSISTANT:"
        return text if answer is None else f"{text} {answer}{END}"
    if conversation == "llava_llama_2":
        text = f"[INST] <<SYS>>\n{SYSTEMS[conversation]}\n<</SYS>>\n\n{user_message} [/INST]"
        return text if answer is None else f"{text} {answer} {END}"
    raise ValueError(f"conversation must be one of {', '.join(CONVERSATIONS)}, not {conversation!r}")


def extract_answer(text: str) -> str:
    """Return the answer in a decoded text, which may include the prompt. It is cleaned as in LISA's evaluation."""
    plain = text.replace("\n", "").replace("  ", " ")
    for mark in ANSWER_AFTER.values():
        plain = plain.rpartition(mark)[2]
    return plain.partition(END)[0].strip()


@dataclass(frozen=True)
class Tokens:
    """A tokenizer and its ids for [SEG], the image token, padding, and the beginning and end of a text."""

    tokenizer: PreTrainedTokenizerBase
    seg: int
    image: int
    pad: int
    bos: int
    eos: int

    @classmethod
    def load(cls, folder: str | Path) -> "Tokens":
        """Return the tokenizer that :meth:`save` wrote. Raises UserError if it is missing or unusable."""
        return cls._of(_read_tokenizer(folder), str(folder))

    @classmethod
    def prepare(cls, source: str | Path | PreTrainedTokenizerBase) -> "Tokens":
        """Add LISA's tokens [SEG], <im_start>, <im_end> and <image> to a tokenizer or the tokenizer in a folder.

        Tokens that the tokenizer already has keep their ids. Padding is ``<unk>``, as in LISA. Raises UserError if the
        folder cannot be read or the tokenizer splits [SEG].
        """
        is_tokenizer = isinstance(source, PreTrainedTokenizerBase)
        tokenizer = source if is_tokenizer else _read_tokenizer(source)
        tokenizer.pad_token = tokenizer.unk_token
        tokenizer.padding_side = "right"
        # not normalised, because a tokenizer may insert a white-space token before a normalised token
        tokenizer.add_tokens([AddedToken(SEG, normalized=False, special=False)])
        for token in (IMAGE_START, IMAGE_END, IMAGE):
            tokenizer.add_tokens([AddedToken(token, normalized=False, special=True)], special_tokens=True)
        return cls._of(tokenizer, "the tokenizer" if is_tokenizer else str(source))

    @classmethod
    def _of(cls, tokenizer: PreTrainedTokenizerBase, where: str) -> "Tokens":
        ids = {token: tokenizer.convert_tokens_to_ids(token) for token in (SEG, IMAGE)}
        for token, text in ((SEG, SEG), (SEG, f"ASSISTANT: {SEG}"), (IMAGE, IMAGE)):
            token_ids = tokenizer(text, add_special_tokens=False).input_ids
            is_one_id = token_ids == [ids[token]] if text == token else token_ids.count(ids[token]) == 1
            if ids[token] in (None, tokenizer.unk_token_id) or not is_one_id:
                raise UserError(
                    f"{where} turns {text!r} into the ids {token_ids}, but {token} must be a single id: "
                    "use the tokenizer of LISA-7B-v1 or of its base Llama"
                )
        special_ids = {"pad": tokenizer.pad_token_id, "bos": tokenizer.bos_token_id, "eos": tokenizer.eos_token_id}
        for name, value in special_ids.items():
            if value is None:
                raise UserError(f"{where} has no {name} token: use the tokenizer of LISA-7B-v1 or of its base Llama")
        return cls(tokenizer, ids[SEG], ids[IMAGE], **special_ids)

    def __len__(self) -> int:
        """Return the number of token ids. The model's embedding must have at least this number of rows."""
        return len(self.tokenizer)

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer into a folder from which :meth:`load` reads it."""
        self.tokenizer.save_pretrained(str(folder))

    def encode(
        self, instruction: str, answer: str | None, conversation: str, features: int, max_length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (input ids, labels), int64 (L,), of a prompt, with the image token repeated ``features`` times.

        Labels are IGNORED except at the answer and the end token. As in LISA, a prompt with an answer is cut at
        ``max_length`` tokens, image included, and a prompt without an answer is never cut. Raises UserError if a text
        has a special token of the tokenizer, or if the instruction leaves no room for the answer.
        """
        for name, text, allowed in (("instruction", instruction, ()), ("answer", answer or "", (SEG,))):
            for token in _RESERVED:
                if token in text and token not in allowed:
                    raise UserError(f"the {name} {text!r} contains {token!r}, a special token of the model: remove it")
        ids = prompt_ids = self._ids(write_prompt(instruction, None, conversation))
        if answer is not None:
            ids = self._ids(write_prompt(instruction, answer, conversation))[: max(0, max_length - features + 1)]
            if len(ids) <= len(prompt_ids):
                raise UserError(
                    f"the instruction {instruction!r} takes {len(prompt_ids) + features - 1} tokens with its image, so "
                    f"its answer has no room in max_length {max_length}: raise max_length or shorten the instruction"
                )
        place = ids.index(self.image)
        widened = ids[:place] + [self.image] * features + ids[place + 1 :]
        labels = [IGNORED] * (len(prompt_ids) + features - 1) + ids[len(prompt_ids) :]
        return torch.tensor(widened), torch.tensor(labels)

    def _ids(self, text: str) -> list[int]:
        pieces = _CUT.split(text)
        ids = [self.bos]
        for place, piece in enumerate(pieces):
            if piece in _MARKS:
                ids.append(self.eos if piece == END else self.tokenizer.convert_tokens_to_ids(piece))
                continue
            if place and pieces[place - 1] in _ADDED:
                piece = piece.lstrip()
            if place + 1 < len(pieces) and pieces[place + 1] in _ADDED:
                piece = piece.rstrip()
            if piece:
                ids += self.tokenizer(piece, add_special_tokens=False).input_ids
        return ids

    def decode(self, ids: Iterable[int] | torch.Tensor) -> str:
        """Return the text of token ids, with special tokens but without the image token (LISA's evaluation)."""
        special_tokens = {self.tokenizer.convert_tokens_to_ids(token): token for token in _ADDED}
        special_tokens |= {self.bos: BEGIN, self.eos: END}
        texts, run = [], []
        for number in ids.tolist() if isinstance(ids, torch.Tensor) else ids:
            if number == self.image:
                continue
            if number in special_tokens:
                texts += [self._text(run), special_tokens[number]]
                run = []
            else:
                run.append(number)
        return " ".join(text for text in (*texts, self._text(run)) if text)

    def _text(self, run: list[int]) -> str:
        return self.tokenizer.decode(run, skip_special_tokens=False).strip() if run else ""


def _read_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"there is no folder {str(folder)!r} of a tokenizer: correct the path")
    is_slow = (folder / "tokenizer.model").is_file() and not (folder / "tokenizer.json").is_file()
    problem, remedy = f"{folder} holds no readable tokenizer", "download its files again"
    if is_slow and find_spec("sentencepiece") is None:
        problem, remedy = f"{folder} has its tokenizer only as tokenizer.model", "install sentencepiece to read it"
    with refuse_unreadable(folder, problem, remedy, ImportError, KeyError, TypeError):
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, padding_side="right")


def make_word_tokenizer(texts: Iterable[str], base_tokens: Iterable[str] = ()) -> PreTrainedTokenizerFast:
    """Return the tokenizer of the engine lite. Every word and punctuation mark of the texts and prompts is a token.

    ``base_tokens``: more tokens to include. The ids are 0 for ``<unk>``, 1 for ``<s>``, 2 for ``</s>``, and then those
    of the sorted words. A text with single spaces is the same after encoding and decoding.
    """
    cut = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.Split(Regex(r"[^\w▁]"), "isolated")]
    )
    frame = [write_prompt("", "", conversation) for conversation in SYSTEMS]
    words = set(base_tokens) | {
        word
        for text in (*texts, *frame)
        for piece in _CUT.split(text)
        if piece not in _MARKS and piece.strip()
        for word, _ in cut.pre_tokenize_str(piece.strip())
    }
    names = [UNKNOWN, BEGIN, END]
    vocabulary = {name: place for place, name in enumerate(names + sorted(words - set(names)))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    marks = {"unk_token": UNKNOWN, "bos_token": BEGIN, "eos_token": END, "pad_token": UNKNOWN}
    how = {"padding_side": "right", "clean_up_tokenization_spaces": False}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks, **how)
