"""Keys and values of what ROSALIA's language model has read: common beginnings once, the rest in memory taken once."""

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class PrefixCache(Cache):
    """The keys and values of all layers, in two steps: beginnings that prompts share, then the prompts' own tokens.

    room: tokens that follow the beginnings and are kept. With 0 what follows attends to its beginning and is forgotten,
    as nothing reads it again.
    """

    def __init__(self, layers: int, room: int):
        super().__init__(layers=[_Layer(room) for _ in range(layers)])

    def follow(self, group: torch.Tensor) -> None:
        """End the beginnings: rows that are read from now on, int64 (B,), begin with those of their group."""
        for layer in self.layers:
            layer.group = group


class _Layer(CacheLayerMixin):
    """One layer's keys and values (rows, heads, tokens, channels). Nothing is joined anew for a token."""

    is_sliding = False

    def __init__(self, room: int):
        super().__init__()
        self.room, self.length = room, 0
        self.group: torch.Tensor | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Take the memory of all tokens and put the beginnings there."""
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
        """Take the keys and values of new tokens; return those of all tokens so far."""
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
        """Keep some rows."""
        self.keys, self.values = self.keys[indices], self.values[indices]
