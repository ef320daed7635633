"""Settings of the stage semisyn_detectors."""

from typing import Annotated

from pydantic import Field

from cxr.workflow.settings.base import Section, Share, key


class LiteDetector(Section):
    """The engine lite: the small anchor-free net, from random weights."""

    size: int = key(256, "Side of the net's square input, a multiple of 32.", unit="px", ge=64, le=2048, multiple_of=32)
    widths: list[Annotated[int, Field(ge=4, le=1024)]] = key(
        lambda: [16, 32, 56, 96, 128],
        "Channels of the net at 1/2 to 1/32 of its input's size.",
        min_length=5,
        max_length=5,
    )
    batch: int = key(8, "Images an update.", ge=1, le=1024)
    rate: float = key(2e-3, "Highest learning rate.", gt=0, le=1)
    warmup: float = key(0.15, "Fraction of the updates until the highest learning rate.", gt=0, lt=1)
    decay: float = key(0.01, "Weight decay.", ge=0, le=1)
    clip: float = key(5.0, "Largest norm of the gradient.", gt=0, le=1000)
    memory: Share = key(0.98, "Part of the running mean of the weights that an update keeps.")
    bfloat16: bool = key(True, "Convolutions in bfloat16: about twice as fast on processors that have it.")
    checkpoint_every: int = key(100, "Updates between two writes of an unfinished training.", ge=1, le=100_000)


class Detectors(Section):
    """Detectors that are trained with and without synthetic images."""

    lite: LiteDetector = key(LiteDetector, "Settings of the engine lite.")
