"""What makes a large net faster on a device and changes its numbers only by rounding (settings ``compute``)."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from cxr.base.errors import describe, out_of_memory
from cxr.base.faults import broken

log = logging.getLogger("cxr")


@dataclass(frozen=True)
class Speed:
    """channels_last: memory layout of pictures; compiled: by torch.compile; cudnn: which of its algorithms are used.

    ``deterministic`` algorithms give the same numbers in every run; ``fastest`` are those that cuDNN finds fastest when
    it tries all, whose order of additions may change from run to run.
    """

    channels_last: bool = False
    compiled: bool = False
    cudnn: Literal["deterministic", "fastest"] = "deterministic"

    @classmethod
    def of(cls, compute: dict) -> "Speed":
        """Read it from the settings' section ``compute``."""
        key_by_field = {"channels_last": "channels_last", "compiled": "compile", "cudnn": "cudnn"}
        return cls(**{name: compute[key] for name, key in key_by_field.items() if key in compute})


@contextmanager
def running(speed: Speed, *, tf32: bool = False) -> Iterator[None]:
    """Run nets without gradients with these algorithms; ``tf32``: with products in TF32 where the GPU has it."""
    fastest = speed.cudnn == "fastest"
    previous_tf32 = torch.backends.cuda.matmul.allow_tf32
    cudnn_flags = torch.backends.cudnn.flags(
        enabled=True, benchmark=fastest, deterministic=not fastest, allow_tf32=tf32
    )
    with torch.inference_mode(), cudnn_flags:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = previous_tf32


def memory_format(speed: Speed) -> torch.memory_format:
    """Return the layout in which a net's weights, and so its pictures, lie in memory."""
    return torch.channels_last if speed.channels_last else torch.contiguous_format


def quick(net: torch.nn.Module, speed: Speed, net_name: str) -> Callable:
    """Return the net in the memory layout, and compiled if that is wanted; ``net_name`` names it in the log."""
    net = net.to(memory_format=memory_format(speed))
    return Compiled(net, net_name) if speed.compiled else net


class Compiled:
    """A net that torch compiles at its first call. If that fails, the net itself is called, with one line in the log.

    A lack of memory and a broken device are no failures of the compiler and are raised.
    """

    def __init__(self, net: torch.nn.Module, net_name: str):
        self.net, self.what = net, net_name
        self.call: Callable = torch.compile(net, dynamic=False)

    def __call__(self, *args, **kwargs):
        """Call the net."""
        try:
            return self.call(*args, **kwargs)
        except Exception as error:
            if self.call is self.net or out_of_memory(error) or broken(error) in ("the job", "the device"):
                raise
            log.warning("%s cannot be compiled here and runs as it is: %s", self.what, describe(error))
            self.call = self.net
            return self.net(*args, **kwargs)
