"""The training recipe: the settings that all engines have."""

from dataclasses import dataclass, fields, replace

from cxr.base.errors import UserError
from cxr.ils.training.trained_parts import LoraOptions
from cxr.nets.microbatch import fit_micro_batch
from cxr.segmentation.losses import LossWeights


@dataclass(frozen=True)
class Recipe:
    """Section ``training.<engine>`` of the configuration, without the keys that only this engine has."""

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
