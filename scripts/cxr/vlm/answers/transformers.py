"""The engine transformers: batches of like length, greedy."""

from collections.abc import Sequence
from pathlib import Path

import torch

from cxr.nets.devices import device_of, inference
from cxr.vlm.answers.engine import AnswersOptions, Asked, Execution, Said
from cxr.vlm.collate import Collator
from cxr.vlm.conventions import convention_of
from cxr.vlm.models import Loaded, load_run, read_run
from cxr.vlm.segmenting import hidden_states

GPU = True


class Transformers:
    """A model in this process."""

    def __init__(self, loaded: Loaded, collator: Collator, options: AnswersOptions, how: Execution):
        self.loaded, self.collator, self.options, self.how = loaded, collator, options, how
        self.device = device_of(how.device, how.asked)
        loaded.model.to(self.device)

    def answer(self, asked: Sequence[Asked]) -> list[Said]:
        """Return the answers, in order."""
        order = sorted(range(len(asked)), key=lambda at: (len(asked[at].encoded.ids), at))
        found: dict[int, Said] = {}
        for first in range(0, len(order), self.how.batch):
            part = order[first : first + self.how.batch]
            found |= zip(part, self._batch([asked[at] for at in part]), strict=True)
        return [found[at] for at in range(len(asked))]

    def _batch(self, asked: Sequence[Asked]) -> list[Said]:
        tokens, most = self.loaded.tokens, self.options.max_new_tokens
        batch = self.collator.batch([one.encoded for one in asked], left=True).to(self.device)
        dtype = next(self.loaded.model.parameters()).dtype
        inputs = {name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.inputs.items()}
        with inference(), hidden_states(self.loaded.model) as states:
            made = self.loaded.model.generate(
                **inputs, max_new_tokens=most, do_sample=False, num_beams=1, use_cache=True,
                pad_token_id=tokens.pad, eos_token_id=tokens.end, temperature=None, top_p=None, top_k=None,
                repetition_penalty=1.0,
            )  # fmt: skip
        said = []
        for at, row in enumerate(made[:, batch.inputs["input_ids"].shape[1] :].tolist()):
            ended = tokens.end in row
            kept = row[: row.index(tokens.end)] if ended else row
            # the last state of a step foretells its token
            marks = [states[step][at, -1].cpu() for step, token in enumerate(kept) if token == tokens.seg]
            said.append(Said(tokens.text(kept), len(kept), "end" if ended else "length", "", tuple(marks)))
        return said


def load(run: Path, base: str, options: AnswersOptions, how: Execution) -> Transformers:
    """Return the engine for a run."""
    facts = read_run(run)
    loaded = load_run(run, base or None, getattr(torch, options.dtype))
    convention = convention_of(options.convention or facts["convention"])
    return Transformers(loaded, Collator(loaded.family, loaded.tokens, convention, facts["wording"]), options, how)
