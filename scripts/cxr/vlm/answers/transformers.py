"""The engine transformers: greedy decoding in batches. Later turns reuse the KV cache of earlier turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import Cache

from cxr.base.engines import Setup, engine_module
from cxr.nets.devices import inference, select_device
from cxr.vlm.answers.engine import AnswersOptions, ModelAnswer, TurnRequest
from cxr.vlm.collate import Collator
from cxr.vlm.families.engine import FAMILIES
from cxr.vlm.models import load_run, read_run
from cxr.vlm.segmenting import hidden_states

GPU = True


@dataclass
class ConversationCache:
    """Cached conversations of a batch. ``names`` are the sample ids of the batch's rows. ``cache`` is their KV cache.

    ``places`` holds, for each row, the token at each cache position, or None for padding and discarded tokens.
    """

    names: list[str]
    cache: Cache | None
    places: list[list[int | None]]

    def contains(self, names: Sequence[str]) -> bool:
        """Return whether all conversations with these sample ids are cached."""
        return set(names) <= set(self.names)

    def resume(self, names: Sequence[str], prompts: Sequence[Sequence[int]], pad: int) -> dict:
        """Restrict the cache to the sample ids ``names``. Return model inputs for the uncached ends of ``prompts``.

        The inputs (N, L) have a position per cached key, then the tokens to read, padded on the left. Positions outside
        a prompt are masked. A prompt is read from its first token that differs from the cache, because its earlier
        answers may not be the answers that the model gave.
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
        return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}

    def _matched(self, row: int, prompt: Sequence[int]) -> list[int]:
        """Return the end of a prompt that is not cached, and discard cached tokens that do not match the prompt."""
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
        """Record the generated tokens up to the token ``end``, except those whose keys are not in the cache yet."""
        cached_length = self.cache.get_seq_length()
        for places, answer in zip(self.places, answers, strict=True):
            ended = answer.index(end) + 1 if end in answer else len(answer)
            places += [token if at < ended else None for at, token in enumerate(answer)]
            del places[cached_length:]


class Transformers:
    """The engine: a model that runs in this process. ``at_once`` is the batch size.

    If ``reuses_kv_cache``, a later turn reads only its question, and the image is encoded once per conversation.
    """

    def __init__(
        self, model: nn.Module, collator: Collator, options: AnswersOptions, setup: Setup, reuses_kv_cache: bool = False
    ):
        self.model, self.collator, self.options = model, collator, options
        self.at_once, self.reuses_kv_cache = setup.batch, reuses_kv_cache
        self.device = select_device(setup.device, setup.requested_gpus)
        self.cache: ConversationCache | None = None
        model.to(self.device)

    def answer(self, requests: Sequence[TurnRequest]) -> list[ModelAnswer]:
        """Return the answers, in order. A later turn continues from the KV cache of the previous call."""
        tokens = self.collator.tokens
        names = [request.encoded.sample_id for request in requests]
        is_cached = self.cache and self.cache.contains(names) and all(request.turn for request in requests)
        inputs = self._unread_prompts(requests) if is_cached else self._whole_prompts(requests)
        with inference(), hidden_states(self.model) as states:
            generation = self.model.generate(
                **inputs, max_new_tokens=self.options.max_new_tokens, do_sample=False, num_beams=1, use_cache=True,
                pad_token_id=tokens.pad, eos_token_id=tokens.end, temperature=None, top_p=None, top_k=None,
                repetition_penalty=1.0, return_dict_in_generate=True,
            )  # fmt: skip
        answers = generation.sequences[:, inputs["input_ids"].shape[1] :].tolist()
        if self.cache:
            self.cache.cache = generation.past_key_values
            self.cache.append_answers(answers, tokens.end)
        decoded_answers = []
        for at, row in enumerate(answers):
            ended = tokens.end in row
            answer_ids = row[: row.index(tokens.end)] if ended else row
            # the last state of a step predicts its token
            marks = [states[step][at, -1].cpu() for step, token in enumerate(answer_ids) if token == tokens.seg]
            text, stop = tokens.text(answer_ids), "end" if ended else "length"
            decoded_answers.append(ModelAnswer(text, len(answer_ids), stop, "", tuple(marks)))
        return decoded_answers

    def _whole_prompts(self, requests: Sequence[TurnRequest]) -> dict:
        self.cache = None  # frees the memory of the previous batch first
        batch = self.collator.batch([request.encoded for request in requests], pad_left=True).to(self.device)
        if self.reuses_kv_cache:
            ids, mask = batch.inputs["input_ids"].tolist(), batch.inputs["attention_mask"].tolist()
            rows = (zip(*row, strict=True) for row in zip(ids, mask, strict=True))
            places = [[token if is_attended else None for token, is_attended in row] for row in rows]
            self.cache = ConversationCache([request.encoded.sample_id for request in requests], None, places)
        dtype = next(self.model.parameters()).dtype
        return {name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.inputs.items()}

    def _unread_prompts(self, requests: Sequence[TurnRequest]) -> dict:
        names, prompts = zip(*((request.encoded.sample_id, request.encoded.ids) for request in requests), strict=True)
        inputs = self.cache.resume(names, prompts, self.collator.tokens.pad)
        return {name: value.to(self.device) for name, value in inputs.items()} | {"past_key_values": self.cache.cache}


def load(run: Path, base: str, options: AnswersOptions, setup: Setup, collator: Collator) -> Transformers:
    """Return the engine with the model of a run."""
    model = load_run(run, base, getattr(torch, options.dtype)).model
    reuses_kv_cache = getattr(engine_module(FAMILIES, read_run(run)["family"]), "REUSES_KV_CACHE", False)
    return Transformers(model, collator, options, setup, reuses_kv_cache)
