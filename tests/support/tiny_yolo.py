"""Detectors of the ScaledYOLOv4 family in the format of the published checkpoints, and what they must compute.

A plan of four scales as the published P6 has it, at any width; a checkpoint whose classes are called as the published
ones, which are nowhere at hand when it is read; the net's result by formulas over its state dict, without the net.
"""

import sys
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from cxr.imaging.boxes.scaled_yolov4.network import Conv, Detect, Network, Residual

PACKAGE = "vinbigdata.scaled_yolov4.models"
ANCHORS = [
    [13, 17, 31, 25, 24, 51, 61, 45],
    [61, 45, 48, 102, 119, 96, 97, 189],
    [97, 189, 217, 184, 171, 384, 324, 451],
    [324, 451, 545, 357, 616, 618, 1024, 1024],
]
STRIDES = [8.0, 16.0, 32.0, 64.0]


def plan(classes: int = 14, width: float = 1.0, depth: float = 1.0) -> dict:
    """The P6 plan: a backbone of six halvings, then up and down again over four scales."""
    backbone = [[-1, 1, "Conv", [32, 3, 1]]]
    for channels, blocks in ((64, 1), (128, 3), (256, 15), (512, 15), (1024, 7), (1024, 7)):
        backbone += [[-1, 1, "Conv", [channels, 3, 2]], [-1, blocks, "BottleneckCSP", [channels]]]
    head = [[-1, 1, "SPPCSP", [512]]]
    for channels, route in ((512, -6), (256, -13), (128, -20)):
        head += [
            [-1, 1, "Conv", [channels, 1, 1]],
            [-1, 1, "nn.Upsample", ["None", 2, "nearest"]],
            [route, 1, "Conv", [channels, 1, 1]],
            [[-1, -2], 1, "Concat", [1]],
            [-1, 3, "BottleneckCSP2", [channels]],
        ]
    for out, channels, joint in ((256, 256, 23), (512, 512, 18), (1024, 512, 13)):
        head += [
            [-1, 1, "Conv", [out, 3, 1]],
            [-2, 1, "Conv", [channels, 3, 2]],
            [[-1, joint], 1, "Concat", [1]],
            [-1, 3, "BottleneckCSP2", [channels]],
        ]
    head += [[-1, 1, "Conv", [1024, 3, 1]], [[29, 33, 37, 41], 1, "Detect", ["nc", "anchors"]]]
    sizes = {"nc": classes, "depth_multiple": depth, "width_multiple": width, "anchors": ANCHORS}
    return sizes | {"backbone": backbone, "head": head}


def tiny_plan(classes: int = 14) -> dict:
    """The same plan with 8 channels throughout (16 where it has 1024)."""
    return plan(classes, width=1 / 64, depth=0.1)


def tiny_net(seed: int, classes: int = 14) -> Network:
    """A tiny net whose numbers spread its scores over the whole range."""
    torch.manual_seed(seed)
    net = Network(tiny_plan(classes), STRIDES)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.8, 1.6)
            nn.init.normal_(module.bias, 0, 0.3)
            module.eps, module.momentum = 1e-3, 1.0
    head = net.model[-1]
    for layer in head.m:
        nn.init.normal_(layer.weight, 0, 0.3)
        nn.init.normal_(layer.bias, 0, 0.3)
    grid = torch.tensor(ANCHORS).view(4, 1, 4, 1, 1, 2) / 8
    head.anchor_grid.copy_(grid)
    head.anchors.copy_(grid.view(4, 4, 2) / torch.tensor(STRIDES).view(4, 1, 1))
    # statistics of pictures, so that what the net gives depends on the picture
    net.train()(nn.functional.interpolate(torch.rand(4, 3, 9, 9), 192, mode="bicubic"))
    return net.eval()


def _published(net: Network, names: list[str] | None, activation: str) -> tuple[nn.Module, dict[str, ModuleType]]:
    """A copy of the net in classes that are called as the published ones, and the modules that these are in."""
    homes = {name: ModuleType(name) for name in ("mish_cuda", f"{PACKAGE}.common", f"{PACKAGE}.yolo")}

    def known(name: str, home: str) -> type:
        if not hasattr(homes[home], name):
            setattr(homes[home], name, type(name, (nn.Module,), {"__module__": home, "__qualname__": name}))
        return getattr(homes[home], name)

    def copy(module: nn.Module) -> nn.Module:
        if isinstance(module, nn.Sequential | nn.ModuleList):
            twin = type(module)()
            for key, child in module.named_children():
                twin.add_module(key, copy(child))
        elif type(module).__module__.startswith("torch."):
            twin = deepcopy(module)
        else:
            name = "Bottleneck" if isinstance(module, Residual) else type(module).__name__
            twin = known(name, f"{PACKAGE}.yolo" if name == "Detect" else f"{PACKAGE}.common")()
            for key, child in module.named_children():
                setattr(twin, key, copy(child))
            for key, buffer in module.named_buffers(recurse=False):
                twin.register_buffer(key, buffer.clone())
            if isinstance(module, Conv):
                twin.act = known(activation, "mish_cuda")()
            if isinstance(module, Detect):
                twin.stride, twin.nc, twin.grid = torch.tensor(STRIDES), module.outputs - 5, [torch.zeros(1)] * 4
        return twin

    model = known("Model", f"{PACKAGE}.yolo")()
    model.model = nn.Sequential(*map(copy, net.model))
    model.yaml, model.stride, model.save = tiny_plan(net.classes), torch.tensor(STRIDES), [1, 2]
    if names is not None:
        model.names = names
    return model, homes


@contextmanager
def importable(modules: dict[str, ModuleType]):
    """Have modules, and the packages they are in, importable inside the block alone."""
    folders = {name.rsplit(".", cut)[0] for name in modules for cut in range(1, name.count(".") + 1)}
    there = {name: ModuleType(name) for name in folders} | modules
    sys.modules.update(there)
    try:
        yield
    finally:
        for name in there:
            del sys.modules[name]


def save(net: Network, path: Path, names: list[str] | None, *, half: bool = True, activation: str = "MishCuda") -> Path:
    """Save a net as the public training code does at its end: whole, in half precision, without the optimizer."""
    model, homes = _published(net, names, activation)
    if half:
        model = model.half()
    with importable(homes):
        entries = {"epoch": -1, "best_fitness": 0.4, "training_results": None, "model": model, "optimizer": None}
        torch.save(entries, path)
    return path


# the oracle


def expected(state: dict[str, torch.Tensor], steps: dict, pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes (B, N, 4) and scores (B, N, C) by formulas over a state dict; N: scale, anchor, row, column."""

    def conv(name, x, kernel=1, stride=1):
        return nn.functional.conv2d(x, state[f"{name}.weight"], state.get(f"{name}.bias"), stride, kernel // 2)

    def norm(name, x):
        mean, var, gain, shift = (
            state[f"{name}.{key}"].view(1, -1, 1, 1) for key in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-3) ** 0.5 * gain + shift

    def mish(x):
        return x * torch.tanh(torch.log1p(torch.exp(x)))

    def unit(name, x, kernel=1, stride=1):
        return mish(norm(f"{name}.bn", conv(f"{name}.conv", x, kernel, stride)))

    def blocks(name, x, adds):
        for number in range(1 + max(int(key.split(".")[3]) for key in state if key.startswith(f"{name}.m."))):
            y = unit(f"{name}.m.{number}.cv2", unit(f"{name}.m.{number}.cv1", x), 3)
            x = x + y if adds else y
        return x

    def layer(kind, name, x, arguments):
        if kind == "Conv":
            return unit(name, x, *arguments[1:])
        if kind == "BottleneckCSP":
            both = conv(f"{name}.cv3", blocks(name, unit(f"{name}.cv1", x), True)), conv(f"{name}.cv2", x)
            return unit(f"{name}.cv4", mish(norm(f"{name}.bn", torch.cat(both, 1))))
        if kind == "BottleneckCSP2":
            x = unit(f"{name}.cv1", x)
            both = blocks(name, x, False), conv(f"{name}.cv2", x)
            return unit(f"{name}.cv3", mish(norm(f"{name}.bn", torch.cat(both, 1))))
        if kind == "SPPCSP":
            y = unit(f"{name}.cv4", unit(f"{name}.cv3", unit(f"{name}.cv1", x), 3))
            pyramid = [y]
            for reach in (2, 4, 6):  # the largest of a window, over all its shifts
                window = range(2 * reach + 1)
                padded = nn.functional.pad(y, [reach] * 4, value=-torch.inf)
                rows, columns = y.shape[-2:]
                shifts = [padded[..., r : r + rows, c : c + columns] for r in window for c in window]
                pyramid.append(torch.stack(shifts).amax(0))
            y = unit(f"{name}.cv6", unit(f"{name}.cv5", torch.cat(pyramid, 1)), 3)
            return unit(f"{name}.cv7", mish(norm(f"{name}.bn", torch.cat((y, conv(f"{name}.cv2", x)), 1))))
        assert kind == "nn.Upsample"
        return x.repeat_interleave(2, -1).repeat_interleave(2, -2)

    done, x = [], pictures
    for number, (source, _, kind, arguments) in enumerate(steps["backbone"] + steps["head"]):
        if kind == "Concat":
            x = torch.cat([done[one] for one in source], 1)
        elif kind == "Detect":
            return _boxes([conv(f"model.{number}.m.{i}", done[one]) for i, one in enumerate(source)], state, number)
        else:
            x = layer(kind, f"model.{number}", x if source == -1 else done[source], arguments)
        done.append(x)
    raise AssertionError


def _boxes(maps: list[torch.Tensor], state: dict, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    boxes, scores = [], []
    for stride, x, anchors in zip(STRIDES, maps, state[f"model.{number}.anchor_grid"].view(4, 4, 2), strict=True):
        rows, columns = x.shape[-2:]
        value = 1 / (1 + torch.exp(-x.view(len(x), 4, -1, rows, columns)))
        for a in range(4):
            for r in range(rows):
                for c in range(columns):
                    sx, sy, sw, sh, there, *what = value[:, a, :, r, c].T
                    x0, y0 = (2 * sx - 0.5 + c) * stride, (2 * sy - 0.5 + r) * stride
                    w, h = (2 * sw) ** 2 * anchors[a, 0], (2 * sh) ** 2 * anchors[a, 1]
                    boxes.append(torch.stack((x0 - w / 2, y0 - h / 2, x0 + w / 2, y0 + h / 2), -1))
                    scores.append(torch.stack([there * one for one in what], -1))
    return torch.stack(boxes, 1), torch.stack(scores, 1)
