"""The engine transformers: greedy batched decoding; the KV cache is reused across turns."""

from collections.abc import Sequence
from pathlib import Path

import torch

from cxr.base.engines import engine_module
from cxr.nets.devices import inference, select_device
from cxr.vlm.answers.conversation_cache import ConversationCache
from cxr.vlm.answers.engine import AnswersOptions, Execution, ModelAnswer, TurnRequest
from cxr.vlm.collate import Collator
from cxr.vlm.conventions import find_convention
from cxr.vlm.models import Loaded, load_run, read_run
from cxr.vlm.segmenting import hidden_states

GPU = True


class Transformers:
    """A model in this process. at_once: batch size; reuses_kv_cache: whether a later turn reads only its own question
    and the image is encoded once.
    """

    def __init__(
        self,
        loaded: Loaded,
        collator: Collator,
        options: AnswersOptions,
        execution: Execution,
        reuses_kv_cache: bool = False,
    ):
        self.loaded, self.collator, self.options, self.execution = loaded, collator, options, execution
        self.at_once, self.reuses_kv_cache = execution.batch, reuses_kv_cache
        self.device = select_device(execution.device, execution.asked)
        self.cache: ConversationCache | None = None
        loaded.model.to(self.device)

    def answer(self, requests: Sequence[TurnRequest]) -> list[ModelAnswer]:
        """Return the answers, in order. A later turn continues from the cache of the previous call."""
        tokens = self.loaded.tokens
        inputs = self._unread_prompts(requests) if self._continues(requests) else self._whole_prompts(requests)
        with inference(), hidden_states(self.loaded.model) as states:
            generation = self.loaded.model.generate(
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
            decoded_answers.append(
                ModelAnswer(tokens.text(answer_ids), len(answer_ids), "end" if ended else "length", "", tuple(marks))
            )
        return decoded_answers

    def _continues(self, requests: Sequence[TurnRequest]) -> bool:
        names = [request.encoded.sample_id for request in requests]
        return self.cache is not None and all(request.turn for request in requests) and self.cache.contains(names)

    def _whole_prompts(self, requests: Sequence[TurnRequest]) -> dict:
        """Return the inputs of whole prompts, with images."""
        self.cache = None  # frees the memory of the previous batch first
        batch = self.collator.batch([request.encoded for request in requests], pad_left=True).to(self.device)
        if self.reuses_kv_cache:
            ids, mask = batch.inputs["input_ids"].tolist(), batch.inputs["attention_mask"].tolist()
            places = [
                [token if is_attended else None for token, is_attended in zip(*row, strict=True)]
                for row in zip(ids, mask, strict=True)
            ]
            self.cache = ConversationCache([request.encoded.sample_id for request in requests], None, places)
        dtype = next(self.loaded.model.parameters()).dtype
        return {name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.inputs.items()}

    def _unread_prompts(self, requests: Sequence[TurnRequest]) -> dict:
        """Return the inputs of prompts whose beginnings are cached."""
        names, prompts = zip(*((request.encoded.sample_id, request.encoded.ids) for request in requests), strict=True)
        unread = self.cache.resume(names, prompts, self.loaded.tokens.pad)
        inputs = {"input_ids": unread.ids, "attention_mask": unread.mask}
        return {name: value.to(self.device) for name, value in inputs.items()} | {"past_key_values": self.cache.cache}


def load(run: Path, base: str, options: AnswersOptions, execution: Execution) -> Transformers:
    """Return the engine for a run."""
    facts = read_run(run)
    loaded = load_run(run, base, getattr(torch, options.dtype))
    convention = find_convention(options.convention or facts["convention"])
    collator = Collator(loaded.family, loaded.tokens, convention, facts["wording"])
    reuses_kv_cache = getattr(engine_module("cxr.vlm.families", facts["family"]), "REUSES_KV_CACHE", False)
    return Transformers(loaded, collator, options, execution, reuses_kv_cache)
