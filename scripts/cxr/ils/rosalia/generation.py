"""Greedy batched decoding of answers, with a key-value cache whose shared prefixes are stored once."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from transformers.cache_utils import Cache, CacheLayerMixin

GPU_CHECK_INTERVAL = 4  # tokens between two checks on a GPU whether answers have ended. A check waits for the device


class PrefixCache(Cache):
    """Keys and values of all layers, filled in two steps: prefixes that prompts share, then the prompts' own tokens.

    ``room``: number of tokens after the prefixes to store. With 0 they attend to their prefix but are not stored.
    """

    def __init__(self, layers: int, room: int):
        super().__init__(layers=[_Layer(room) for _ in range(layers)])

    def end_prefixes(self, group: torch.Tensor) -> None:
        """End the prefixes: later rows continue the prefix of their ``group``, int64 (B,)."""
        for layer in self.layers:
            layer.group = group


class _Layer(CacheLayerMixin):
    """Keys and values (rows, heads, tokens, channels) of one layer, in memory allocated once."""

    is_sliding = False

    def __init__(self, room: int):
        super().__init__()
        self.room, self.length = room, 0
        self.group: torch.Tensor | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate memory for all tokens and copy the prefixes into it."""
        self.keys, self.values = (
            self._roomy(cached_states, new_states)
            for cached_states, new_states in ((self.keys, key_states), (self.values, value_states))
        )
        self.is_initialized = True

    def _roomy(self, cached_states: torch.Tensor, new_states: torch.Tensor) -> torch.Tensor:
        rows, heads, _, channels = new_states.shape
        buffer = new_states.new_empty(rows, heads, self.length + self.room, channels)
        buffer[:, :, : self.length] = cached_states[self.group]
        return buffer

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the keys and values of new tokens; return those of all tokens so far."""
        if self.group is None:
            self.keys, self.values, self.length = key_states, value_states, key_states.shape[-2]
            return key_states, value_states
        if not self.room:
            pairs = ((self.keys, key_states), (self.values, value_states))
            keys, values = (
                torch.cat([cached_states[self.group], new_states], -2) for cached_states, new_states in pairs
            )
            return keys, values
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep only these rows."""
        self.keys, self.values = self.keys[indices], self.values[indices]


@dataclass(frozen=True)
class PromptState:
    """State after the language model has read B prompts.

    ``last_hidden``: hidden states of their last tokens (B, H); ``lengths``: tokens of each (B,); ``attention_mask``:
    added to attention scores (B, 1, 1, L), minus infinity at padding, or None without padding.
    """

    last_hidden: torch.Tensor
    cache: PrefixCache
    lengths: torch.Tensor
    attention_mask: torch.Tensor | None


def default_check_interval(device: torch.device) -> int:
    """Return after how many tokens to check whether answers have ended; on a CPU a check is free."""
    return 1 if device.type == "cpu" else GPU_CHECK_INTERVAL


def generate_greedily(
    model: nn.Module, head: nn.Module, words: Callable[[torch.Tensor], torch.Tensor], prompted: PromptState, end: int,
    max_tokens: int, check_interval: int,
) -> tuple[list[list[int]], torch.Tensor]:  # fmt: skip
    """Return the tokens of each answer (with a generated end token), and the states (B, T, H) that predicted them.

    ``model``: language model; ``head``: states to logits; ``words``: token ids to embeddings; ``end``: end token;
    ``max_tokens``: limit per answer; ``check_interval``: tokens between two checks, which drop finished answers.
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
                rows, next_tokens, attention_mask = (
                    rows[going],
                    next_tokens[going],
                    None if attention_mask is None else attention_mask[going],
                )
                prompted.cache.batch_select_indices(going)
        hidden = model(
            inputs_embeds=words(next_tokens)[:, None],
            # a mask with four axes is used as is; transformers would inspect a two-dimensional one at every token
            attention_mask=None
            if attention_mask is None
            else attention_mask[..., : prompted.cache.get_seq_length() + 1],
            position_ids=(prompted.lengths[rows] + step)[:, None],
            past_key_values=prompted.cache,
            use_cache=True,
        ).last_hidden_state[:, 0]
    answer_ids = tokens.tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in answer_ids], states
