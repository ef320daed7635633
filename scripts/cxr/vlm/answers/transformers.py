"""The engine transformers: greedy, in batches; what is read of a conversation is kept for its next round."""

from collections.abc import Sequence
from pathlib import Path

import torch

from cxr.base.engines import engine_module
from cxr.nets.devices import inference, select_device
from cxr.vlm.answers.engine import AnswersOptions, Asked, Execution, Said
from cxr.vlm.answers.rounds import Rounds
from cxr.vlm.collate import Collator
from cxr.vlm.conventions import convention_of
from cxr.vlm.models import Loaded, load_run, read_run
from cxr.vlm.segmenting import hidden_states

GPU = True


class Transformers:
    """A model in this process. at_once: turns that it answers together; goes_on: whether it keeps, over the rounds of a
    conversation, what it has read: then a round reads its question alone, and a picture is encoded once.
    """

    def __init__(
        self, loaded: Loaded, collator: Collator, options: AnswersOptions, execution: Execution, goes_on: bool = False
    ):
        self.loaded, self.collator, self.options, self.how = loaded, collator, options, execution
        self.at_once, self.goes_on = execution.batch, goes_on
        self.device = select_device(execution.device, execution.asked)
        self.rounds: Rounds | None = None
        loaded.model.to(self.device)

    def answer(self, requests: Sequence[Asked]) -> list[Said]:
        """Return the answers, in order. A turn that follows others goes on where the last call left its sample."""
        tokens = self.loaded.tokens
        inputs = self._going(requests) if self._follow(requests) else self._begun(requests)
        with inference(), hidden_states(self.loaded.model) as states:
            generation = self.loaded.model.generate(
                **inputs, max_new_tokens=self.options.max_new_tokens, do_sample=False, num_beams=1, use_cache=True,
                pad_token_id=tokens.pad, eos_token_id=tokens.end, temperature=None, top_p=None, top_k=None,
                repetition_penalty=1.0, return_dict_in_generate=True,
            )  # fmt: skip
        answers = generation.sequences[:, inputs["input_ids"].shape[1] :].tolist()
        if self.rounds:
            self.rounds.cache = generation.past_key_values
            self.rounds.said(answers, tokens.end)
        decoded_answers = []
        for at, row in enumerate(answers):
            ended = tokens.end in row
            answer_ids = row[: row.index(tokens.end)] if ended else row
            # the last state of a step foretells its token
            marks = [states[step][at, -1].cpu() for step, token in enumerate(answer_ids) if token == tokens.seg]
            decoded_answers.append(
                Said(tokens.text(answer_ids), len(answer_ids), "end" if ended else "length", "", tuple(marks))
            )
        return decoded_answers

    def _follow(self, requests: Sequence[Asked]) -> bool:
        names = [request.encoded.sample_id for request in requests]
        return self.rounds is not None and all(request.turn for request in requests) and self.rounds.has(names)

    def _begun(self, requests: Sequence[Asked]) -> dict:
        """Return the inputs of prompts that are read from their beginnings, pictures included."""
        self.rounds = None  # frees the last ones' memory first
        batch = self.collator.batch([request.encoded for request in requests], pad_left=True).to(self.device)
        if self.goes_on:
            ids, mask = batch.inputs["input_ids"].tolist(), batch.inputs["attention_mask"].tolist()
            places = [
                [token if is_attended else None for token, is_attended in zip(*row, strict=True)]
                for row in zip(ids, mask, strict=True)
            ]
            self.rounds = Rounds([request.encoded.sample_id for request in requests], None, places)
        dtype = next(self.loaded.model.parameters()).dtype
        return {name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.inputs.items()}

    def _going(self, requests: Sequence[Asked]) -> dict:
        """Return the inputs of prompts that go on."""
        names, prompts = zip(*((request.encoded.sample_id, request.encoded.ids) for request in requests), strict=True)
        going = self.rounds.go_on(names, prompts, self.loaded.tokens.pad)
        inputs = {"input_ids": going.ids, "attention_mask": going.mask}
        return {name: value.to(self.device) for name, value in inputs.items()} | {"past_key_values": self.rounds.cache}


def load(run: Path, base: str, options: AnswersOptions, execution: Execution) -> Transformers:
    """Return the engine for a run."""
    facts = read_run(run)
    loaded = load_run(run, base, getattr(torch, options.dtype))
    convention = convention_of(options.convention or facts["convention"])
    collator = Collator(loaded.family, loaded.tokens, convention, facts["wording"])
    goes_on = getattr(engine_module("cxr.vlm.families", facts["family"]), "GOES_ON", False)
    return Transformers(loaded, collator, options, execution, goes_on)
