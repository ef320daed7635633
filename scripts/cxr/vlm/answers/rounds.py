"""Conversations that go on: the keys and values of what a model has read and said are kept for the next round."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import Cache


@dataclass(frozen=True)
class Going:
    """What is left to read of prompts whose beginnings are kept.

    ids, mask (N, L): a place for each key that is kept, then the tokens to read, padded before them; a place that is no
    part of a prompt is masked.
    """

    ids: torch.Tensor
    mask: torch.Tensor


@dataclass
class Rounds:
    """Conversations of a batch. names: of its rows; cache: their keys and values; places: of each row the token of each
    place in the cache, None for padding and what is no part of the conversation.
    """

    names: list[str]
    cache: Cache | None
    places: list[list[int | None]]

    def has(self, names: Sequence[str]) -> bool:
        """Return whether all these conversations are kept."""
        return set(names) <= set(self.names)

    def go_on(self, names: Sequence[str], prompts: Sequence[Sequence[int]], pad: int) -> Going:
        """Keep the conversations ``names`` alone, in this order, and return what is left to read of their prompts.

        A prompt is read again from the first token that is not the kept one: earlier answers may be told otherwise than
        the model gave them.
        """
        rows = [self.names.index(name) for name in names]
        if rows != list(range(len(self.names))):
            self.cache.batch_select_indices(torch.tensor(rows))
        self.names, self.places = list(names), [self.places[row] for row in rows]
        unread_tokens = [self._matched(row, prompt) for row, prompt in enumerate(prompts)]
        longest = max(map(len, unread_tokens))
        for row, ids in enumerate(unread_tokens):
            self.places[row] += [*[None] * (longest - len(ids)), *ids]
        ids = [[pad if token is None else token for token in row] for row in self.places]
        mask = [[int(token is not None) for token in row] for row in self.places]
        return Going(torch.tensor(ids), torch.tensor(mask))

    def _matched(self, row: int, prompt: Sequence[int]) -> list[int]:
        """Return the end of a prompt that is not kept, and leave out what is kept beyond its beginning."""
        count, differs = 0, False
        for place, token in enumerate(self.places[row]):
            # the last token is always read: what it foretells is asked
            differs = differs or (token is not None and (count == len(prompt) - 1 or token != prompt[count]))
            if differs:
                self.places[row][place] = None
            elif token is not None:
                count += 1
        return list(prompt[count:])

    def said(self, answers: Sequence[Sequence[int]], end: int) -> None:
        """Note the tokens that followed the prompts, of which the cache has all but the last step's."""
        cached_length = self.cache.get_seq_length()
        for places, answer in zip(self.places, answers, strict=True):
            ended = answer.index(end) + 1 if end in answer else len(answer)
            places += [token if at < ended else None for at, token in enumerate(answer)]
            del places[cached_length:]
