"""Inception-v3 as FID uses it: the net of 2015 up to its 2,048 pooled features, in plain torch.

It differs from the usual Inception-v3 (Szegedy et al., 2016): average pooling ignores padding, the last block pools by
maximum instead of average, and images are resized as in TensorFlow 1.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

SIDE, FEATURES = 299, 2048
"""Side of the input, px, and number of features."""
EPS = 0.001
AVERAGE, MAXIMUM, SHRINK = "average", "maximum", "shrink"
"""Pooling of a block's last path; ``shrink`` is maximum pooling with stride 2."""
Layer = tuple[str, int, int | tuple[int, int]]
"""Name, channels, and size of the kernel."""
SHORT, LONG = (1, 3), (3, 1)
WIDE, TALL = (1, 7), (7, 1)


class _Norm(nn.Module):
    """Batch normalisation with fixed statistics, without the batch counter, which published files may lack."""

    def __init__(self, channels: int):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.ones(channels)) for _ in range(2))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=EPS)


class _Conv(nn.Module):
    """Convolution, norm, ReLU. Stride 1 preserves the size unless ``valid``."""

    def __init__(self, inputs: int, outputs: int, size: int | tuple[int, int], stride: int = 1, valid: bool = False):
        super().__init__()
        height, width = (size, size) if isinstance(size, int) else size
        padding = (0, 0) if valid or stride == 2 else (height // 2, width // 2)
        self.conv = nn.Conv2d(inputs, outputs, (height, width), stride, padding, bias=False)
        self.bn = _Norm(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.bn(self.conv(x)))


class _Mixed(nn.Module):
    """Parallel paths of convolutions with concatenated outputs; a path may end in two layers that share their input.

    With the pooling :data:`SHRINK`, the last layer of each path and the pooling halve the size.
    """

    def __init__(self, inputs: int, paths: Sequence[Sequence[Layer | tuple[Layer, Layer]]], pooled: int, kind: str):
        super().__init__()
        self.kind, self.paths = kind, []
        for path in paths:
            channels, names = inputs, []
            for at, part in enumerate(path):
                layers = part if isinstance(part[0], tuple) else (part,)
                stride = 2 if kind == SHRINK and at == len(path) - 1 else 1
                for name, outputs, size in layers:
                    self.add_module(name, _Conv(channels, outputs, size, stride))
                names.append([name for name, *_ in layers])
                channels = layers[0][1]
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
    double = [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3), ("branch3x3dbl_3", 96, 3)]
    paths = [[("branch1x1", 64, 1)], [("branch5x5_1", 48, 1), ("branch5x5_2", 64, 5)], double]
    return _Mixed(inputs, paths, pooled, AVERAGE)


def _block_c(within: int) -> _Mixed:
    single: list[Layer] = [("branch7x7_1", within, 1), ("branch7x7_2", within, WIDE), ("branch7x7_3", 192, TALL)]
    sizes: tuple[int | tuple[int, int], ...] = (1, TALL, WIDE, TALL, WIDE)
    double: list[Layer] = [(f"branch7x7dbl_{at}", 192 if at == 5 else within, size) for at, size in enumerate(sizes, 1)]
    return _Mixed(768, [[("branch1x1", 192, 1)], single, double], 192, AVERAGE)


def _block_e(inputs: int, kind: str) -> _Mixed:
    pair: tuple[Layer, Layer] = (("branch3x3_2a", 384, SHORT), ("branch3x3_2b", 384, LONG))
    single: list[Layer | tuple[Layer, Layer]] = [("branch3x3_1", 384, 1), pair]
    ends: tuple[Layer, Layer] = (("branch3x3dbl_3a", 384, SHORT), ("branch3x3dbl_3b", 384, LONG))
    double: list[Layer | tuple[Layer, Layer]] = [("branch3x3dbl_1", 448, 1), ("branch3x3dbl_2", 384, 3), ends]
    return _Mixed(inputs, [[("branch1x1", 320, 1)], single, double], 192, kind)


class Inception(nn.Module):
    """Map images (B, 3, H, W) with values 0..255 to features (B, 2048)."""

    def __init__(self):
        super().__init__()
        self.Conv2d_1a_3x3 = _Conv(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = _Conv(32, 32, 3, valid=True)
        self.Conv2d_2b_3x3 = _Conv(32, 64, 3)
        self.Conv2d_3b_1x1 = _Conv(64, 80, 1)
        self.Conv2d_4a_3x3 = _Conv(80, 192, 3, valid=True)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = _block_a(192, 32), _block_a(256, 64), _block_a(288, 64)
        shrunk = [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3), ("branch3x3dbl_3", 96, 3)]
        self.Mixed_6a = _Mixed(288, [[("branch3x3", 384, 3)], shrunk], 0, SHRINK)
        self.Mixed_6b, self.Mixed_6c, self.Mixed_6d, self.Mixed_6e = map(_block_c, (128, 160, 160, 192))
        sizes: tuple[int | tuple[int, int], ...] = (1, WIDE, TALL, 3)
        long = [(f"branch7x7x3_{at}", 192, size) for at, size in enumerate(sizes, 1)]
        self.Mixed_7a = _Mixed(768, [[("branch3x3_1", 192, 1), ("branch3x3_2", 320, 3)], long], 0, SHRINK)
        self.Mixed_7b, self.Mixed_7c = _block_e(1280, AVERAGE), _block_e(2048, MAXIMUM)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the features."""
        x = (resize_like_tensorflow(image, SIDE) - 128) / 128
        x = F.max_pool2d(self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x))), 3, 2)
        x = F.max_pool2d(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)), 3, 2)
        for name, block in self.named_children():
            if name.startswith("Mixed_"):
                x = block(x)
        return x.mean(dim=(2, 3))


def resize_like_tensorflow(image: torch.Tensor, side: int) -> torch.Tensor:
    """Resize images (B, C, H, W) to ``side`` rows and columns, bilinearly, as TensorFlow 1 did.

    Pixel i of the result lies at i times the ratio of the sizes: the corners are aligned, not the pixel centres.
    """
    for axis in (2, 3):
        size = image.shape[axis]
        at = torch.arange(side, dtype=image.dtype, device=image.device) * (size / side)
        low = at.floor().long().clamp(max=size - 1)
        share = (at - low).reshape(-1, *[1] * (3 - axis))
        first, second = (image.index_select(axis, place) for place in (low, (low + 1).clamp(max=size - 1)))
        image = first + share * (second - first)
    return image
