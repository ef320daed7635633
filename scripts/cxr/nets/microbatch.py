"""Split a training batch over GPUs. The check of the settings and the training both use this module."""

from dataclasses import replace
from typing import ClassVar, Self

from cxr.base.errors import UserError


def fit_micro_batch(batch: int, micro_batch: int, ranks: int, balanced: bool = False) -> int:
    """Return the largest size of micro-batches, up to ``micro_batch`` samples, with which ``ranks`` GPUs can share
    ``batch`` samples equally, or 0 if there is none. If ``balanced``, the size is even, so half can be positive."""
    share, remainder = divmod(batch, ranks)
    if remainder:
        return 0
    fitting = (size for size in range(min(micro_batch, share), 0, -1) if share % size == 0)
    return next((size for size in fitting if not (balanced and size % 2)), 0)


class SharedBatch:
    """Base class of training options whose batches are divided among GPUs. If ``balance`` is "exact", micro-batches
    have even sizes, so that half of the samples can be positive."""

    clip: ClassVar[float] = 1.0  # maximum gradient norm (authors' codes)
    balance = ""
    batch: int
    micro_batch: int
    dtype: str
    runner: str

    def shared(self, ranks: int) -> Self:
        """Return these options with the largest ``micro_batch`` with which ``ranks`` GPUs can share the batch."""
        size = fit_micro_batch(self.batch, self.micro_batch, ranks, self.balance == "exact")
        # if no size fits, `micro_batches_per_step` raises
        return replace(self, micro_batch=size or self.micro_batch)  # type: ignore[type-var]

    def micro_batches_per_step(self, ranks: int) -> int:
        """Return the number of micro-batches per GPU and step. Raises UserError if this is no whole number."""
        count, remainder = divmod(self.batch, self.micro_batch * ranks)
        if remainder or not count:
            raise UserError(
                f"batch is {self.batch}, which is not a multiple of micro_batch ({self.micro_batch}) times the number "
                f"of GPUs ({ranks}): change batch, micro_batch or compute.gpus"
            )
        return count
