"""The KV cache of conversations, reused across turns."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import Cache


@dataclass(frozen=True)
class UnreadTokens:
    """The unread ends of prompts whose beginnings are cached.

    ids, mask (N, L): one position per cached key, then the tokens to read, padded on the left; positions that are not
    part of a prompt are masked.
    """

    ids: torch.Tensor
    mask: torch.Tensor


@dataclass
class ConversationCache:
    """Conversations of a batch. names: of its rows; cache: their keys and values; places: for each row the token at
    each cache position, None for padding and discarded tokens.
    """

    names: list[str]
    cache: Cache | None
    places: list[list[int | None]]

    def contains(self, names: Sequence[str]) -> bool:
        """True if all these conversations are cached."""
        return set(names) <= set(self.names)

    def resume(self, names: Sequence[str], prompts: Sequence[Sequence[int]], pad: int) -> UnreadTokens:
        """Restrict the cache to the conversations ``names``, in order, and return the unread ends of their prompts.

        A prompt is read from the first token that differs from the cache: its earlier answers may differ from those
        that the model gave.
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
        return UnreadTokens(torch.tensor(ids), torch.tensor(mask))

    def _matched(self, row: int, prompt: Sequence[int]) -> list[int]:
        """Return the uncached end of a prompt, and discard cached tokens that do not match it."""
        count, differs = 0, False
        for place, token in enumerate(self.places[row]):
            # the last token is always read, because the answer starts with its prediction
            differs = differs or (token is not None and (count == len(prompt) - 1 or token != prompt[count]))
            if differs:
                self.places[row][place] = None
            elif token is not None:
                count += 1
        return list(prompt[count:])

    def append_answers(self, answers: Sequence[Sequence[int]], end: int) -> None:
        """Record the generated tokens, of which the cache has all but the last."""
        cached_length = self.cache.get_seq_length()
        for places, answer in zip(self.places, answers, strict=True):
            ended = answer.index(end) + 1 if end in answer else len(answer)
            places += [token if at < ended else None for at, token in enumerate(answer)]
            del places[cached_length:]
