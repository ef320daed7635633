"""Greedy decoding of answers in batches, with a key-value cache that stores shared prefixes of prompts once."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicLayer

CHECK_INTERVALS = {"cpu": 1, "cuda": 4}  # tokens between two checks for ended answers, each of which waits for the GPU


class PrefixCache(Cache):
    """Key-value cache that stores the shared prefixes of prompts and, if ``is_growing``, also the later tokens."""

    def __init__(self, layers: int, is_growing: bool):
        super().__init__(layers=[DynamicLayer() if is_growing else _PrefixLayer() for _ in range(layers)])

    def end_prefixes(self, group: torch.Tensor) -> None:
        """End the prefixes. From then on, row i of the B prompts continues the prefix ``group[i]``, int64 (B,)."""
        for layer in self.layers:
            if isinstance(layer, _PrefixLayer):
                layer.group = group
            else:
                layer.batch_select_indices(group)


class _PrefixLayer(DynamicLayer):
    """One layer of a cache that stores only prefixes. Keys and values are (prefixes, heads, tokens, channels)."""

    group: torch.Tensor | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the (keys, values) of all tokens so far. New ones are stored only until the prefixes end."""
        if self.group is None:
            return super().update(key_states, value_states)
        keys, values = self.keys[self.group], self.values[self.group]
        return torch.cat([keys, key_states], -2), torch.cat([values, value_states], -2)


@dataclass(frozen=True)
class PromptState:
    """State of the language model after it has read B prompts."""

    last_hidden: torch.Tensor  # Hidden states of the prompts' last tokens (B, H)
    cache: PrefixCache
    lengths: torch.Tensor  # Numbers of tokens of the prompts (B,)
    attention_mask: torch.Tensor | None
    """Term added to attention scores (B, 1, 1, L), minus infinity at padding; None without padding."""


def generate_greedily(
    model: nn.Module, head: nn.Module, words: Callable[[torch.Tensor], torch.Tensor], prompted: PromptState, end: int,
    max_tokens: int, check_interval: int,
) -> tuple[list[list[int]], torch.Tensor]:  # fmt: skip
    """Return (token ids of each answer, with the end token if generated; hidden states (B, T, H) that predicted them).

    ``head`` turns states into logits, and ``words`` turns token ids into embeddings. ``prompted``: state to start from;
    ``end``: id of the end token. Answers that have ended are dropped after every ``check_interval`` tokens.
    """
    hidden, attention_mask = prompted.last_hidden, prompted.attention_mask
    rows = torch.arange(len(hidden), device=hidden.device)  # unfinished answers
    tokens = torch.full((len(hidden), max_tokens), end, device=hidden.device)
    states = hidden.new_zeros(len(hidden), max_tokens, hidden.shape[1])
    ended = torch.zeros(len(hidden), dtype=torch.bool, device=hidden.device)
    for step in range(max_tokens):
        next_tokens = head(hidden).float().argmax(-1)
        tokens[rows, step], states[rows, step] = next_tokens, hidden
        ended[rows] = ended[rows] | (next_tokens == end)
        if step + 1 == max_tokens:
            break
        if (step + 1) % check_interval == 0:
            going = (~ended[rows]).nonzero()[:, 0]
            if not len(going):
                break
            if len(going) < len(rows):
                rows, next_tokens = rows[going], next_tokens[going]
                attention_mask = None if attention_mask is None else attention_mask[going]
                prompted.cache.batch_select_indices(going)
        # a mask with four axes is used as is; transformers would inspect a two-dimensional one at every token
        mask = None if attention_mask is None else attention_mask[..., : prompted.cache.get_seq_length() + 1]
        hidden = model(
            inputs_embeds=words(next_tokens)[:, None],
            attention_mask=mask,
            position_ids=(prompted.lengths[rows] + step)[:, None],
            past_key_values=prompted.cache,
            use_cache=True,
        ).last_hidden_state[:, 0]
    answer_ids = tokens.tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in answer_ids], states
