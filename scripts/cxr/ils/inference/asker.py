"""Ask a trained model instructions about images. Each image is encoded once for all its instructions.

The batch size changes answers and masks only by rounding errors, which can flip a pixel whose logit is near zero.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from cxr.base.workers import EngineFault, process_fitting_batches
from cxr.ils.inference.settings import InferenceOptions
from cxr.ils.rosalia.model import Rosalia, Views, sam_batch
from cxr.ils.rosalia.samples import PairOptions, Sample, collate
from cxr.ils.rosalia.tokens import Tokens, extract_answer
from cxr.nets.devices import inference, select_device

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
NO_SEG, SEVERAL_SEG = "no_seg", "several_seg"
"""Notes on answers without [SEG], which have no mask, and with several [SEG], whose masks are united."""


@dataclass(frozen=True)
class Reply:
    """The reply of a model to one instruction."""

    answer: str | None = None  # Text of the answer; None if no text was requested or the model failed
    mask_values: np.ndarray | None = None
    """Mask logits (T, T), positive inside the mask, converted by ``keep`` of :meth:`Asker.ask`; None without [SEG]."""
    note: str = ""  # ``NO_SEG``, ``SEVERAL_SEG`` or empty
    fault: str = ""  # Reason why there is no reply
    error: Exception | None = None  # Exception of the model; the same object for all pairs of an image


@dataclass
class Asker:
    """A trained model with its tokenizer on a device, which answers instructions.

    ``batch``: number of images, and of pairs, that are processed at once. It is halved if memory is short.
    """

    model: Rosalia
    tokens: Tokens
    options: InferenceOptions
    device: torch.device
    batch: int = 8

    def __post_init__(self) -> None:
        self.images = self.pairs = max(1, self.batch)

    @classmethod
    def load(cls, folder: str | Path, options: InferenceOptions, compute: dict | None = None) -> "Asker":
        """Read the model and tokenizer in ``folder``. Raises UserError if they or ``compute``'s device are missing."""
        compute = compute or {}
        device = select_device(compute.get("device", "auto"), compute.get("asked"))
        tokens = Tokens.load(folder)
        model = Rosalia.from_pretrained(folder, DTYPES[options.dtype], device)
        model.images_at_once = sam_batch(compute)
        return cls(model.eval(), tokens, options, device, compute.get("batch", 8))

    def pair_options(self) -> PairOptions:
        """Return the options for the preparation of pairs as inputs of this model."""
        how = {"target": self.options.size, "answers": False, "equalise": self.options.equalise}
        return PairOptions.for_model(self.model.config, self.options, **how)

    def ask(
        self, samples: Sequence[Sample], keep: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.float
    ) -> list[Reply]:
        """Return one reply per sample, in order; ``keep`` converts mask logits (T, T) to ``Reply.mask_values``."""
        first = {sample.view: sample for sample in reversed(samples)}
        replies: dict[int, Reply] = {}
        with inference():
            encoded, self.images = process_fitting_batches(
                self._encoded, [(sample,) for sample in first.values()], self.images, "pictures"
            )
            views = dict(zip(first, encoded, strict=True))
            # sorted by image, because prompts of one image share a prefix that is computed once, and by length
            order = {view: number for number, view in enumerate(dict.fromkeys(sample.view for sample in samples))}
            rows = sorted(enumerate(samples), key=lambda row: (order[row[1].view], len(row[1].input_ids)))
            ready = []
            for place, sample in rows:
                image_views, fault = views[sample.view]
                if fault:
                    replies[place] = _make_fault_reply(fault)
                else:
                    ready.append((place, sample, image_views))
            replies_or_faults, self.pairs = process_fitting_batches(
                lambda some: self._answered(some, keep), ready, self.pairs, "pairs"
            )
        for (place, _, _), (reply, fault) in zip(ready, replies_or_faults, strict=True):
            replies[place] = _make_fault_reply(fault) if fault else reply
        return [replies[place] for place in range(len(samples))]

    def _encoded(self, rows: list[tuple[Sample]]) -> list[tuple[Views, None]]:
        batch = collate([sample for (sample,) in rows], self.tokens.pad)
        views = self.model.encode(batch.to(self.device, self.model.dtype))
        return [(Views(views.features[n], views.embeddings[n]), None) for n in batch.image_of.tolist()]

    def _answered(
        self, rows: list[tuple[int, Sample, Views]], keep: Callable[[torch.Tensor], torch.Tensor]
    ) -> list[tuple[Reply, None]]:
        samples = [sample for _, sample, _ in rows]
        unique_views = list({sample.view: views for _, sample, views in rows}.values())  # in the order of collate
        views = Views(*map(torch.stack, zip(*[(view.features, view.embeddings) for view in unique_views], strict=True)))
        batch = collate(samples, self.tokens.pad)
        # pixels are not needed once the views are known
        batch = replace(batch, images=batch.images[:0], clip=batch.clip[:0], content_shapes=None)
        batch = batch.to(self.device, self.model.dtype)
        if not self.options.text:
            masks = [keep(logits).cpu().numpy() for logits in self.model.segment(batch, views)]
            return [(Reply(mask_values=mask_values), None) for mask_values in masks]
        generated = self.model.generate(batch, self.options.max_new_tokens, views)
        replies = []
        for ids, masks in zip(generated.ids, generated.masks, strict=True):
            mask_values = keep(masks.amax(0)).cpu().numpy() if len(masks) else None
            note = "" if len(masks) == 1 else SEVERAL_SEG if len(masks) else NO_SEG
            replies.append((Reply(extract_answer(self.tokens.decode(ids)), mask_values, note), None))
        return replies


def _make_fault_reply(fault: EngineFault) -> Reply:
    return Reply(fault=": ".join(fault), error=fault.error)
