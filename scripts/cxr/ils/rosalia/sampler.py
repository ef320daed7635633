"""Sample the pairs of each training batch. A resumed training gets the same batches."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from torch.utils.data import Sampler

from cxr.base.errors import UserError
from cxr.base.seeds import stable_hash


class Draw(NamedTuple):
    """One use of a pair in training: which pair, and how its image and its text are varied."""

    row: int  # Row of the pair in the file
    equalised: bool  # Whether the image's histogram is equalised
    wording: float = 0.0  # Random number in [0, 1) that selects the wording; 0 selects the plain instruction


class PairSampler(Sampler[list[Draw]]):
    """Sampler of training batches. An epoch has each positive once and as many negatives, drawn with replacement.

    If ``balance`` is "expectation", positives and negatives are shuffled together (authors' code). If it is "exact",
    each batch has as many negatives as positives. If it is "all", an epoch has each negative once. The order depends
    only on seed and epoch, so an epoch can resume at any batch. If the pairs of an epoch cannot be divided among the
    ``world`` processes, the first pairs are repeated at the end. Raises UserError without positives or negatives, or
    for an odd batch with "exact".
    """

    def __init__(
        self,
        positive: np.ndarray,
        *,
        batch: int,
        seed: int,
        balance: str,
        equalise: float,
        where: str,
        reword: bool = False,
        rank: int = 0,
        world: int = 1,
    ):
        """``positive``: bool (N,), of pairs in the file ``where``; ``equalise``: probability; ``reword``: vary text."""
        self.positives, self.negatives = np.flatnonzero(positive), np.flatnonzero(~positive)
        for name, rows in (("positive", self.positives), ("negative", self.negatives)):
            if not len(rows):
                raise UserError(f"{where} holds no {name} pair: train on a dataset with positive and negative pairs")
        if balance == "exact" and batch % 2:
            raise UserError(f"micro_batch is {batch}, but balance exact needs an even number: change one")
        self.batch, self.seed, self.balance, self.equalise = batch, seed, balance, equalise
        self.rank, self.world, self.reword = rank, world, reword
        self.epoch = self.first = 0

    def start_at(self, epoch: int, batch: int = 0) -> None:
        """Set the epoch and the batch in it at which the next iteration starts."""
        self.epoch, self.first = epoch, batch

    def count_batches(self) -> int:
        """Return the number of batches per epoch and process."""
        num_pairs = len(self.positives) + (len(self.negatives) if self.balance == "all" else len(self.positives))
        return -(-num_pairs // (self.batch * self.world))

    def __len__(self) -> int:
        return self.count_batches() - self.first

    def draw_order(self, epoch: int) -> list[Draw]:
        """Return the draws of an epoch for all processes, in order."""
        generator = np.random.Generator(np.random.PCG64(stable_hash(self.seed, "draws", epoch)))
        count = len(self.positives)
        negatives = self.negatives if self.balance == "all" else generator.choice(self.negatives, count)
        if self.balance == "exact":
            rows = np.stack([generator.permutation(self.positives), negatives], axis=1).ravel()
        else:
            rows = generator.permutation(np.concatenate([self.positives, negatives]))
        equalised = generator.random(len(rows)) < self.equalise
        wordings = self._wordings(epoch, len(rows))
        unit = self.world * (2 if self.balance == "exact" else 1)
        places = np.arange(-(-len(rows) // unit) * unit) % len(rows)
        every = zip(rows[places], equalised[places], wordings[places], strict=True)
        return [Draw(int(row), bool(flag), float(chance)) for row, flag, chance in every]

    def _wordings(self, epoch: int, count: int) -> np.ndarray:
        if not self.reword:
            return np.zeros(count)
        return np.random.Generator(np.random.PCG64(stable_hash(self.seed, "wordings", epoch))).random(count)

    def __iter__(self) -> Iterator[list[Draw]]:
        order, step = self.draw_order(self.epoch), self.batch * self.world
        for first in range(self.first * step, len(order), step):
            together = order[first : first + step]
            share = len(together) // self.world
            yield together[self.rank * share : (self.rank + 1) * share]
