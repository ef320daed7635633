"""Collating samples and images into a model's batch: token ids, labels, attention mask and encoded images."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cxr.vlm.conventions import Convention
from cxr.vlm.families.engine import EncodedImages, Family
from cxr.vlm.samples import Sample
from cxr.vlm.segmenting import MaskTargets, SegBatch, join_segs
from cxr.vlm.tokens import IGNORED, Tokens


@dataclass(frozen=True)
class Encoded:
    """One encoded conversation and its image. ``ids`` are the ids of its tokens.

    ``labels`` are ``ids`` with -100 in place of each token that the loss ignores. ``aims`` are the target masks of its
    [SEG] tokens, if any.
    """

    sample_id: str
    ids: list[int]
    labels: list[int]
    pictures: EncodedImages
    aims: MaskTargets | None = None

    @property
    def nbytes(self) -> int:
        """Memory size of the images and masks, in bytes."""
        masks = [self.aims.levels, self.aims.masks] if self.aims else []
        return sum(tensor.nbytes for tensor in [*self.pictures.tensors.values(), *masks])


@dataclass(frozen=True)
class Batch:
    """A batch of N conversations: inputs of the model, labels (N, L), and [SEG] tokens (None if the model has none)."""

    sample_ids: list[str]
    inputs: dict[str, torch.Tensor]
    labels: torch.Tensor
    segs: SegBatch | None = None

    def to(self, device: torch.device) -> "Batch":
        inputs = {name: value.to(device) for name, value in self.inputs.items()}
        return Batch(self.sample_ids, inputs, self.labels.to(device), self.segs and self.segs.to(device))


class Collator:
    """Encoder of conversations. ``marks``: whether the loss covers the chat template's marks between turns too."""

    def __init__(self, family: Family, tokens: Tokens, convention: Convention, marks: bool = False):
        self.family, self.tokens, self.convention, self.marks = family, tokens, convention, marks
        self._sized: dict[tuple[int, int], EncodedImages] = {}

    def encode(self, sample: Sample, picture: np.ndarray) -> Encoded:
        """Encode a sample with its answers, for training. Raises UserError for a text that cannot be encoded."""
        return self.encode_all([sample], picture)[0]

    def encode_all(self, samples: Sequence[Sample], picture: np.ndarray) -> list[Encoded]:
        """Encode samples about one image with their answers. The image is encoded once. Raises like :meth:`encode`."""
        pictures = self.family.pictures([picture])
        return [self._encoded(sample, pictures) for sample in samples]

    def length(self, sample: Sample, size: tuple[int, int]) -> int:
        """Return the number of tokens of a sample with its answers. ``size`` is (H, W) of the image."""
        if size not in self._sized:
            pictures = self.family.pictures([np.zeros((*size, 3), np.uint8)])
            self._sized[size] = EncodedImages({}, pictures.tokens, pictures.sizes)
        return len(self._encoded(sample, self._sized[size]).ids)

    def _encoded(self, sample: Sample, pictures: EncodedImages) -> Encoded:
        turns = [
            (sample.question(turn, self.convention), sample.answer(turn, self.convention, pictures.sizes[0]))
            for turn in range(len(sample.turns))
        ]
        ids, labels = self.tokens.conversation(turns, pictures.tokens[0])
        if self.marks:
            labels = self.tokens.with_marks(ids, labels)
        return Encoded(sample.sample_id, ids, labels, pictures)

    def ask(self, sample: Sample, picture: np.ndarray | EncodedImages, earlier_answers: Sequence[str] = ()) -> Encoded:
        """Encode the prompt of the turn after ``earlier_answers``. ``picture``: pixels, uint8 (H, W, 3), or encoded."""
        pictures = picture if isinstance(picture, EncodedImages) else self.family.pictures([picture])
        earlier_questions = (sample.question(turn, self.convention) for turn in range(len(earlier_answers)))
        earlier_turns = zip(earlier_questions, earlier_answers, strict=True)
        ids, _ = self.tokens.conversation(earlier_turns, pictures.tokens[0])
        question = sample.question(len(earlier_answers), self.convention)
        ids = [*ids, *self.tokens.turn_prompt(question, pictures.tokens[0], first=not earlier_answers)]
        return Encoded(sample.sample_id, ids, [IGNORED] * len(ids), pictures)

    def batch(self, encoded: Sequence[Encoded], pad_left: bool = False) -> Batch:
        """Return a batch of conversations, padded to the longest. ``pad_left`` pads on the left, for generation."""
        longest = max(len(conversation.ids) for conversation in encoded)
        ids = torch.full((len(encoded), longest), self.tokens.pad)
        mask, labels = torch.zeros_like(ids), torch.full_like(ids, IGNORED)
        for row, conversation in enumerate(encoded):
            span = slice(longest - len(conversation.ids), longest) if pad_left else slice(0, len(conversation.ids))
            ids[row, span], mask[row, span] = torch.tensor(conversation.ids), 1
            labels[row, span] = torch.tensor(conversation.labels)
        pictures = EncodedImages.concatenate([conversation.pictures for conversation in encoded])
        family_inputs = self.family.inputs(ids, self.tokens.picture)
        inputs = {"input_ids": ids, "attention_mask": mask} | family_inputs | dict(pictures.tensors)
        return Batch([conversation.sample_id for conversation in encoded], inputs, labels, self._segs(encoded))

    def _segs(self, encoded: Sequence[Encoded]) -> SegBatch | None:
        """Return the [SEG] tokens in the answers of the conversations, or None if the model has no segmenter."""
        if self.tokens.seg is None:
            return None
        segs_by_row = {}
        for row, conversation in enumerate(encoded):
            if conversation.aims:
                marks = zip(conversation.ids, conversation.labels, strict=True)
                places = [at for at, (token, label) in enumerate(marks) if token == label == self.tokens.seg]
                segs_by_row[row] = places, conversation.aims
        return join_segs(segs_by_row)
