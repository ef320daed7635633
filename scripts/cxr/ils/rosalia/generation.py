"""Greedy answers of a language model, token by token on the device: the host looks at them only now and then."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from cxr.ils.rosalia.cache import PrefixCache

GPU_CHECK_INTERVAL = 4
"""Tokens between two looks of the host on a GPU. A look waits for the device; without it, answers that ended go on."""


@dataclass(frozen=True)
class PromptState:
    """Prompts that the language model has read.

    last: hidden states of their last tokens (B, H); lengths: tokens of each (B,); seen: what is added to the scores of
    keys (B, 1, 1, L), minus infinity at padding, or None where nothing is padded.
    """

    last: torch.Tensor
    cache: PrefixCache
    lengths: torch.Tensor
    seen: torch.Tensor | None


def default_check_interval(device: torch.device) -> int:
    """Return after how many tokens the host looks whether answers have ended: on a CPU nothing waits."""
    return 1 if device.type == "cpu" else GPU_CHECK_INTERVAL


def generate_greedily(
    model: nn.Module, head: nn.Module, words: Callable[[torch.Tensor], torch.Tensor], prompted: PromptState, end: int,
    max_tokens: int, check_interval: int,
) -> tuple[list[list[int]], torch.Tensor]:  # fmt: skip
    """Return the tokens of each answer, with its end if it came, and the states (B, T, H) that gave them.

    ``model``: the language model; ``head``: states to logits; ``words``: token ids to embeddings; ``end``: the token
    that ends an answer; ``max_tokens``: most tokens of an answer; ``check_interval``: tokens between two checks on the
    host, which drop the answers that have ended.
    """
    hidden, attention_mask = prompted.last, prompted.seen
    rows = torch.arange(len(hidden), device=hidden.device)  # that are still being answered
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
            # with four axes it is taken as it is; transformers would look into one of two at every token
            attention_mask=None
            if attention_mask is None
            else attention_mask[..., : prompted.cache.get_seq_length() + 1],
            position_ids=(prompted.lengths[rows] + step)[:, None],
            past_key_values=prompted.cache,
            use_cache=True,
        ).last_hidden_state[:, 0]
    answer_ids = tokens.tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in answer_ids], states
