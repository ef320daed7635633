"""The training recipe that all engines share, and its learning rate schedule."""

from dataclasses import dataclass, fields, replace

from cxr.base.errors import UserError
from cxr.ils.training.trained_parts import LoraOptions
from cxr.nets.microbatch import fit_micro_batch
from cxr.segmentation.losses import LossWeights


@dataclass(frozen=True)
class Recipe:
    """Section ``training.<engine>`` of the settings, without keys of single engines."""

    lora: LoraOptions
    trained: list[str]
    epochs: int
    batch: int
    micro_batch: int
    learning_rate: float
    warmup: int
    betas: list[float]
    weight_decay: float
    clip: float
    loss: LossWeights
    dice_on: str
    balance: str
    equalise: float
    keep: str
    dtype: str
    gradient_checkpointing: bool
    runner: str

    @classmethod
    def from_settings(cls, settings: dict) -> "Recipe":
        """Make the recipe from an engine's own settings."""
        plain = {recipe_field.name: settings[recipe_field.name] for recipe_field in fields(cls)}
        return cls(**plain | {"lora": LoraOptions(**settings["lora"]), "loss": LossWeights(**settings["loss"])})

    def shared(self, ranks: int) -> "Recipe":
        """Return the recipe with the largest micro-batch in which ``ranks`` GPUs can share the batch."""
        size = fit_micro_batch(self.batch, self.micro_batch, ranks, self.balance == "exact")
        return replace(self, micro_batch=size or self.micro_batch)  # if no size fits, `micro_batches_per_step` raises

    def micro_batches_per_step(self, ranks: int) -> int:
        """Return each rank's number of micro-batches per update. Raises UserError if the batch does not divide."""
        count, remainder = divmod(self.batch, self.micro_batch * ranks)
        if remainder or not count:
            raise UserError(
                f"training: batch is {self.batch}, no multiple of micro_batch {self.micro_batch} times the "
                f"{ranks} GPUs at work: change batch, micro_batch or compute.gpus"
            )
        return count


def learning_rate(update: int, largest: float, warmup: int, total: int) -> float:
    """Return the learning rate of an update (from 0): linear warm-up to ``largest``, then linear decay to 0.

    Equals DeepSpeed's WarmupDecayLR with warmup_type linear, which lags by one update: the first two have rate 0.
    """
    done, warmup = max(0, update - 1), max(2, warmup)  # DeepSpeed's warm-up takes at least two updates
    if done < warmup:
        return largest * done / warmup
    return largest * max(0.0, (total - done) / max(1.0, total - warmup))
