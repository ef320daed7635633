"""The engine transformers: greedy, in batches; what is read of a conversation is kept for its next round."""

from collections.abc import Sequence
from pathlib import Path

import torch

from cxr.base.engines import engine_module
from cxr.nets.devices import device_of, inference
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
        self, loaded: Loaded, collator: Collator, options: AnswersOptions, how: Execution, goes_on: bool = False
    ):
        self.loaded, self.collator, self.options, self.how = loaded, collator, options, how
        self.at_once, self.goes_on = how.batch, goes_on
        self.device = device_of(how.device, how.asked)
        self.rounds: Rounds | None = None
        loaded.model.to(self.device)

    def answer(self, asked: Sequence[Asked]) -> list[Said]:
        """Return the answers, in order. A turn that follows others goes on where the last call left its sample."""
        tokens = self.loaded.tokens
        inputs = self._going(asked) if self._follow(asked) else self._begun(asked)
        with inference(), hidden_states(self.loaded.model) as states:
            made = self.loaded.model.generate(
                **inputs, max_new_tokens=self.options.max_new_tokens, do_sample=False, num_beams=1, use_cache=True,
                pad_token_id=tokens.pad, eos_token_id=tokens.end, temperature=None, top_p=None, top_k=None,
                repetition_penalty=1.0, return_dict_in_generate=True,
            )  # fmt: skip
        answers = made.sequences[:, inputs["input_ids"].shape[1] :].tolist()
        if self.rounds:
            self.rounds.cache = made.past_key_values
            self.rounds.said(answers, tokens.end)
        said = []
        for at, row in enumerate(answers):
            ended = tokens.end in row
            kept = row[: row.index(tokens.end)] if ended else row
            # the last state of a step foretells its token
            marks = [states[step][at, -1].cpu() for step, token in enumerate(kept) if token == tokens.seg]
            said.append(Said(tokens.text(kept), len(kept), "end" if ended else "length", "", tuple(marks)))
        return said

    def _follow(self, asked: Sequence[Asked]) -> bool:
        names = [one.encoded.sample_id for one in asked]
        return self.rounds is not None and all(one.turn for one in asked) and self.rounds.has(names)

    def _begun(self, asked: Sequence[Asked]) -> dict:
        """Return the inputs of prompts that are read from their beginnings, pictures included."""
        self.rounds = None  # frees the last ones' memory first
        batch = self.collator.batch([one.encoded for one in asked], left=True).to(self.device)
        if self.goes_on:
            ids, mask = batch.inputs["input_ids"].tolist(), batch.inputs["attention_mask"].tolist()
            places = [
                [token if there else None for token, there in zip(*row, strict=True)]
                for row in zip(ids, mask, strict=True)
            ]
            self.rounds = Rounds([one.encoded.sample_id for one in asked], None, places)
        dtype = next(self.loaded.model.parameters()).dtype
        return {name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.inputs.items()}

    def _going(self, asked: Sequence[Asked]) -> dict:
        """Return the inputs of prompts that go on."""
        names, prompts = zip(*((one.encoded.sample_id, one.encoded.ids) for one in asked), strict=True)
        going = self.rounds.go_on(names, prompts, self.loaded.tokens.pad)
        inputs = {"input_ids": going.ids, "attention_mask": going.mask}
        return {name: value.to(self.device) for name, value in inputs.items()} | {"past_key_values": self.rounds.cache}


def load(run: Path, base: str, options: AnswersOptions, how: Execution) -> Transformers:
    """Return the engine for a run."""
    facts = read_run(run)
    loaded = load_run(run, base, getattr(torch, options.dtype))
    convention = convention_of(options.convention or facts["convention"])
    collator = Collator(loaded.family, loaded.tokens, convention, facts["wording"])
    goes_on = getattr(engine_module("cxr.vlm.families", facts["family"]), "GOES_ON", False)
    return Transformers(loaded, collator, options, how, goes_on)
