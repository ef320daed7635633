"""Options that speed up a large net and change its results only by rounding (settings section ``compute``)."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from cxr.base.errors import describe, out_of_memory
from cxr.base.faults import broken_part

log = logging.getLogger("cxr")


@dataclass(frozen=True)
class Speed:
    """Options for speed. ``channels_last``: whether images have this memory layout. ``compiled``: whether torch.compile
    is used. ``cudnn``: ``deterministic`` algorithms give the same results in every run. With ``fastest``, cuDNN tries
    all algorithms and uses the fastest one, so that the order of summation may change from run to run."""

    channels_last: bool = False
    compiled: bool = False
    cudnn: Literal["deterministic", "fastest"] = "deterministic"

    @classmethod
    def from_settings(cls, compute: dict) -> "Speed":
        """Read the options from the settings section ``compute``."""
        key_by_field = {"channels_last": "channels_last", "compiled": "compile", "cudnn": "cudnn"}
        return cls(**{name: compute[key] for name, key in key_by_field.items() if key in compute})


@contextmanager
def fast_inference(speed: Speed, *, tf32: bool = False) -> Iterator[None]:
    """Run nets without gradients, with the algorithms of ``speed``. ``tf32``: whether matrix products may use TF32."""
    fastest = speed.cudnn == "fastest"
    previous_tf32 = torch.backends.cuda.matmul.allow_tf32
    flags = torch.backends.cudnn.flags(enabled=True, benchmark=fastest, deterministic=not fastest, allow_tf32=tf32)
    with torch.inference_mode(), flags:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = previous_tf32


def memory_format(speed: Speed) -> torch.memory_format:
    """Return torch's name of the memory layout that ``speed`` selects for a net's weights and images."""
    return torch.channels_last if speed.channels_last else torch.contiguous_format


def optimize_net(net: torch.nn.Module, speed: Speed, net_name: str) -> Callable:
    """Return the net in the memory layout of ``speed``, compiled if requested. ``net_name``: its name in the log."""
    net = net.to(memory_format=memory_format(speed))
    return CompiledNet(net, net_name) if speed.compiled else net


class CompiledNet:
    """A net that torch compiles at the first call. If the compiler itself fails, the net runs uncompiled.
    Lack of memory and faults of the machine are raised."""

    def __init__(self, net: torch.nn.Module, net_name: str):
        self.net, self.net_name = net, net_name
        self.call: Callable = torch.compile(net, dynamic=False)

    def __call__(self, *args, **kwargs):
        try:
            return self.call(*args, **kwargs)
        except Exception as error:
            if self.call is self.net or out_of_memory(error) or broken_part(error) in ("the job", "the device"):
                raise
            log.warning("%s cannot be compiled and runs uncompiled: %s", self.net_name, describe(error))
            self.call = self.net
            return self.net(*args, **kwargs)
