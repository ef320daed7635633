"""Tokens of conversations with a model family, and a small tokenizer for tiny models."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AddedToken, AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from cxr.base.errors import UserError, refuse_unreadable
from cxr.vlm.families.engine import ChatTemplate

IGNORED = -100  # label of a token that the loss ignores
SEG = "[SEG]"  # token at which an answer gives a mask
PAD, UNKNOWN, VIDEO = "<pad>", "<unk>", "<|video_pad|>"
_PIECE = r"\d| ?[A-Za-z]+|[^A-Za-z0-9]"  # a digit, a word with the space before it, or any other sign is a token


class ReservedTokenError(UserError):
    """Error for a question or answer that contains a token of the chat template."""


@dataclass(frozen=True)
class Tokens:
    """A tokenizer with a chat template (``frame``), and the ids of its tokens. ``seg`` is None without masks."""

    tokenizer: PreTrainedTokenizerBase
    frame: ChatTemplate
    picture: int
    end: int
    pad: int
    seg: int | None = None

    @classmethod
    def read(cls, folder: str | Path, frame: ChatTemplate) -> "Tokens":
        """Read the tokenizer of a model. Raises UserError if it lacks a token of ``frame``, the chat template."""
        with refuse_unreadable(folder, f"{folder} holds no tokenizer", "give the model's whole folder"):
            tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        id_by_name = {}
        for name, text in (("picture", frame.picture), ("end", frame.end)):
            ids = tokenizer(text, add_special_tokens=False).input_ids
            if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
                raise UserError(f"{folder}: {text!r} is not a token of the tokenizer: give the tokenizer of the model")
            id_by_name[name] = ids[0]
        pad = tokenizer.pad_token_id
        return cls(tokenizer, frame, **id_by_name, pad=id_by_name["end"] if pad is None else pad)

    def with_seg(self) -> "Tokens":
        """Return the tokens with [SEG], which is added to the tokenizer if the tokenizer lacks it."""
        self.tokenizer.add_tokens([AddedToken(SEG, normalized=False, special=False)])
        return replace(self, seg=self.tokenizer.convert_tokens_to_ids(SEG))

    def with_system(self, prompt: str) -> "Tokens":
        """Return the tokens with another system prompt in the template. "" keeps the default."""
        return replace(self, frame=self.frame.with_system(prompt))

    def encode_piece(self, text: str) -> list[int]:
        """Return the token ids of a text, such as a piece of the template. "" gives none."""
        return self.tokenizer(text, add_special_tokens=False).input_ids if text else []

    def encode_text(self, text: str) -> list[int]:
        """Return the token ids of a question or an answer. Raises ReservedTokenError for a template token."""
        for mark in self.frame.reserved:
            if mark in text:
                raise ReservedTokenError(f"the text contains {mark!r}, a special token of the model: leave it out")
        return self.encode_piece(text)

    def turn_prompt(self, question: str, count: int, first: bool = True) -> list[int]:
        """Return the token ids of a turn up to its answer. In the first turn, ``count`` tokens stand for the image.

        Raises ReservedTokenError if the question contains a token of the template or [SEG].
        """
        if self.seg is not None and SEG in question:
            raise ReservedTokenError(f"the text contains {SEG!r}, a special token of the model: leave it out")
        frame, encode = self.frame, self.encode_piece
        ids = [*encode(frame.start if first else frame.between), *encode(frame.user)]
        if first:
            ids += [*encode(frame.opening), *[self.picture] * count, *encode(frame.closing)]
        return [*ids, *self.encode_text(question), *encode(frame.assistant)]

    def conversation(self, turns: Iterable[tuple[str, str]], count: int) -> tuple[list[int], list[int]]:
        """Return (token ids, labels) of a conversation. ``turns``: (question, answer). ``count``: tokens of the image.

        Labels are -100 except for answers and their end tokens. The prompt of each turn is a prefix of the ids.
        """
        ids: list[int] = []
        labels: list[int] = []
        for number, (question, answer) in enumerate(turns):
            prompt_ids = self.turn_prompt(question, count, first=not number)
            answer_ids = [*self.encode_text(answer), self.end]
            ids += [*prompt_ids, *answer_ids]
            labels += [*[IGNORED] * len(prompt_ids), *answer_ids]
        return ids, labels

    def with_marks(self, ids: Sequence[int], labels: Sequence[int]) -> list[int]:
        """Return ``labels`` that also cover the template's tokens, line breaks and openings of answers (RadVLM)."""
        marks = {mark for mark in special_tokens(self.frame) if mark != self.frame.picture} | {"\n"}
        mark_ids = {token for mark in marks for token in self.encode_piece(mark)}
        marked_labels = [token if token in mark_ids else label for token, label in zip(ids, labels, strict=True)]
        length = len(self.encode_piece(self.frame.assistant))
        for at in range(1, len(labels)):
            if labels[at] != IGNORED and labels[at - 1] == IGNORED:
                marked_labels[at - length : at] = ids[at - length : at]
        return marked_labels

    def text(self, ids: Iterable[int]) -> str:
        """Return the text of an answer's token ids up to the end token."""
        answer_ids = [token for token in takewhile(lambda token: token != self.end, ids) if token != self.pad]
        return self.tokenizer.decode(answer_ids, clean_up_tokenization_spaces=False)


def small_tokenizer(texts: Iterable[str], frame: ChatTemplate) -> PreTrainedTokenizerFast:
    """Build a tokenizer from the words, digits and signs in ``texts``. Its ids depend only on the set of words."""
    marks = [PAD, UNKNOWN, VIDEO, *special_tokens(frame)]
    words = {piece for text in texts for piece in re.findall(_PIECE, text)}
    for text in (frame.start, frame.user, frame.opening, frame.closing, frame.assistant, frame.between):
        for part in re.split("|".join(map(re.escape, marks)), text):
            words |= set(re.findall(_PIECE, part))
    words |= set('0123456789[]{}":, _.\n')
    vocabulary = {word: number for number, word in enumerate([*marks, *sorted(words - set(marks))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_PIECE), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(mark, normalized=False, special=True) for mark in marks])
    roles = {"image_token": frame.picture, "boi_token": frame.opening, "eoi_token": frame.closing}
    token_by_role = {role: mark.strip() for role, mark in roles.items() if mark.strip()}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, unk_token=UNKNOWN, eos_token=frame.end,
        extra_special_tokens=token_by_role | {"video_token": VIDEO}, clean_up_tokenization_spaces=False,
    )  # fmt: skip


def special_tokens(frame: ChatTemplate) -> list[str]:
    """Return the special tokens of a template, which are all its parts in angle brackets."""
    pieces = (frame.start, frame.user, frame.opening, frame.picture, frame.closing, frame.assistant, frame.end)
    marks: list[str] = []
    for piece in pieces:
        marks += [mark for mark in re.findall(r"<[^<>\n]+>", piece) if mark not in marks]
    return marks
