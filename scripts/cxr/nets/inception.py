"""Inception-v3 for FID in torch alone. It is the net of 2015 up to its 2,048 pooled features.

It differs from the common Inception-v3 (Szegedy et al., 2016): average pooling ignores padding, the last block uses
maximum instead of average pooling, and images are resized as in TensorFlow 1.
"""

import torch
from torch import nn
from torch.nn import functional as F

SIDE, FEATURES = 299, 2048  # side of the input, px, and number of features
EPS = 0.001
AVERAGE, MAXIMUM, SHRINK = "average", "maximum", "shrink"  # a block's pooling; shrink: maximum, stride 2
SHORT, LONG = (1, 3), (3, 1)
WIDE, TALL = (1, 7), (7, 1)


class _Norm(nn.Module):
    """Batch normalisation with fixed statistics. It has no batch counter, because published files may lack one."""

    def __init__(self, channels: int):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.ones(channels)) for _ in range(2))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=EPS)


class _Conv(nn.Module):
    """Convolution, norm and ReLU. With stride 1, the size is preserved, unless ``valid`` leaves out the padding."""

    def __init__(self, inputs: int, outputs: int, size: int | tuple[int, int], stride: int = 1, valid: bool = False):
        super().__init__()
        height, width = (size, size) if isinstance(size, int) else size
        padding = (0, 0) if valid or stride == 2 else (height // 2, width // 2)
        self.conv = nn.Conv2d(inputs, outputs, (height, width), stride, padding, bias=False)
        self.bn = _Norm(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.bn(self.conv(x)))


class _Mixed(nn.Module):
    """Parallel paths of convolutions with concatenated outputs. A path may end in two layers that share their input.

    ``paths``: {name: list of layers as (channels, kernel size)}. A further path pools its input as ``kind`` says, then
    convolves it to ``pooled`` channels. With the kind :data:`SHRINK`, pooling and the last layers halve the size.
    """

    def __init__(self, inputs: int, pooled: int, kind: str, paths: dict[str, list]):
        super().__init__()
        self.kind, self.paths = kind, []
        for path, steps in paths.items():
            channels, names = inputs, []
            for number, step in enumerate(steps, 1):
                layers = step if isinstance(step, list) else [step]
                stride = 2 if kind == SHRINK and number == len(steps) else 1
                name = path if len(steps) == 1 else f"{path}_{number}"
                names.append([name + letter for letter in ("ab" if len(layers) == 2 else ("",))])
                for layer_name, (outputs, size) in zip(names[-1], layers, strict=True):
                    self.add_module(layer_name, _Conv(channels, outputs, size, stride))
                channels = layers[0][0]
            self.paths.append(names)
        if pooled:
            self.branch_pool = _Conv(inputs, pooled, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branch_outputs = []
        for path in self.paths:
            values = x
            for names in path[:-1]:
                values = self.get_submodule(names[0])(values)
            branch_outputs += [self.get_submodule(name)(values) for name in path[-1]]
        if self.kind == SHRINK:
            return torch.cat([*branch_outputs, F.max_pool2d(x, 3, 2)], dim=1)
        near = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False) if self.kind == AVERAGE else F.max_pool2d(x, 3, 1, 1)
        return torch.cat([*branch_outputs, self.branch_pool(near)], dim=1)


def _block_a(inputs: int, pooled: int) -> _Mixed:
    paths: dict[str, list] = {
        "branch1x1": [(64, 1)],
        "branch5x5": [(48, 1), (64, 5)],
        "branch3x3dbl": [(64, 1), (96, 3), (96, 3)],
    }
    return _Mixed(inputs, pooled, AVERAGE, paths)


def _block_c(within: int) -> _Mixed:
    paths: dict[str, list] = {"branch1x1": [(192, 1)], "branch7x7": [(within, 1), (within, WIDE), (192, TALL)]}
    paths |= {"branch7x7dbl": [(within, 1), (within, TALL), (within, WIDE), (within, TALL), (192, WIDE)]}
    return _Mixed(768, 192, AVERAGE, paths)


def _block_e(inputs: int, kind: str) -> _Mixed:
    pair = [(384, SHORT), (384, LONG)]
    paths: dict[str, list] = {
        "branch1x1": [(320, 1)],
        "branch3x3": [(384, 1), pair],
        "branch3x3dbl": [(448, 1), (384, 3), pair],
    }
    return _Mixed(inputs, 192, kind, paths)


class Inception(nn.Module):
    """Net that maps images (B, 3, H, W) with values 0..255 to features (B, 2048)."""

    def __init__(self):
        super().__init__()
        self.Conv2d_1a_3x3 = _Conv(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = _Conv(32, 32, 3, valid=True)
        self.Conv2d_2b_3x3 = _Conv(32, 64, 3)
        self.Conv2d_3b_1x1 = _Conv(64, 80, 1)
        self.Conv2d_4a_3x3 = _Conv(80, 192, 3, valid=True)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = _block_a(192, 32), _block_a(256, 64), _block_a(288, 64)
        shrunk: dict[str, list] = {"branch3x3": [(384, 3)], "branch3x3dbl": [(64, 1), (96, 3), (96, 3)]}
        self.Mixed_6a = _Mixed(288, 0, SHRINK, shrunk)
        self.Mixed_6b, self.Mixed_6c, self.Mixed_6d, self.Mixed_6e = map(_block_c, (128, 160, 160, 192))
        shrunk = {"branch3x3": [(192, 1), (320, 3)], "branch7x7x3": [(192, 1), (192, WIDE), (192, TALL), (192, 3)]}
        self.Mixed_7a = _Mixed(768, 0, SHRINK, shrunk)
        self.Mixed_7b, self.Mixed_7c = _block_e(1280, AVERAGE), _block_e(2048, MAXIMUM)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = (resize_like_tensorflow(image, SIDE) - 128) / 128
        x = F.max_pool2d(self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x))), 3, 2)
        x = F.max_pool2d(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)), 3, 2)
        for name, block in self.named_children():
            if name.startswith("Mixed_"):
                x = block(x)
        return x.mean(dim=(2, 3))


def resize_like_tensorflow(image: torch.Tensor, side: int) -> torch.Tensor:
    """Resize images (B, C, H, W) to ``side``, bilinearly as in TensorFlow 1: pixel i is sampled at i * size / side."""
    for axis in (2, 3):
        size = image.shape[axis]
        at = torch.arange(side, dtype=image.dtype, device=image.device) * (size / side)
        low = at.floor().long().clamp(max=size - 1)
        share = (at - low).reshape(-1, *[1] * (3 - axis))
        first, second = (image.index_select(axis, place) for place in (low, (low + 1).clamp(max=size - 1)))
        image = first + share * (second - first)
    return image
