"""ScaledYOLOv4 in plain PyTorch, for the plans P5 to P7. A net is built from the plan in its checkpoint.

A plan describes a layer by a list [from, number, module, arguments]: the index of the layer that is its input (-1:
previous layer), the number of blocks, the layer type, and channels, kernel and stride. Attribute names match the
published state dicts. Source: Wang et al., Scaled-YOLOv4, CVPR 2021, and the published plans.
"""

import math

import torch
from torch import nn
from torch.nn import functional

POOLS = (5, 9, 13)  # window sizes of the spatial pyramid pooling, cells


class Conv(nn.Module):
    """A convolution with batch normalisation and Mish activation."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.mish(self.bn(self.conv(x)))


class Residual(nn.Module):
    """A 1 x 1 and a 3 x 3 convolution, with a shortcut connection if ``adds``."""

    def __init__(self, channels: int, adds: bool):
        super().__init__()
        self.cv1, self.cv2 = Conv(channels, channels), Conv(channels, channels, 3)
        self.adds = adds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.cv2(self.cv1(x))
        return x + y if self.adds else y


class _Split(nn.Module):
    """Base class of stages with two paths over the same input. The outputs of both paths are normalised together."""

    def joined(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return functional.mish(self.bn(torch.cat((first, second), dim=1)))


class BottleneckCSP(_Split):
    """A stage of the backbone in which half of the channels pass ``number`` residual blocks."""

    def __init__(self, inputs: int, outputs: int, number: int, adds: bool = True):
        super().__init__()
        half = outputs // 2
        self.cv1, self.cv4 = Conv(inputs, half), Conv(2 * half, outputs)
        self.cv2 = nn.Conv2d(inputs, half, 1, bias=False)
        self.cv3 = nn.Conv2d(half, half, 1, bias=False)
        self.bn = nn.BatchNorm2d(2 * half)
        self.m = nn.Sequential(*(Residual(half, adds) for _ in range(number)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cv4(self.joined(self.cv3(self.m(self.cv1(x))), self.cv2(x)))


class BottleneckCSP2(_Split):
    """A stage of the head. After a reduction of channels, ``number`` residual blocks lie beside a 1 x 1 convolution."""

    def __init__(self, inputs: int, outputs: int, number: int, adds: bool = False):
        super().__init__()
        self.cv1, self.cv3 = Conv(inputs, outputs), Conv(2 * outputs, outputs)
        self.cv2 = nn.Conv2d(outputs, outputs, 1, bias=False)
        self.bn = nn.BatchNorm2d(2 * outputs)
        self.m = nn.Sequential(*(Residual(outputs, adds) for _ in range(number)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.cv1(x)
        return self.cv3(self.joined(self.m(x), self.cv2(x)))


class SPPCSP(_Split):
    """A stage with two paths, one of which has spatial pyramid pooling."""

    def __init__(self, inputs: int, outputs: int, number: int = 1):
        super().__init__()
        self.cv1, self.cv3, self.cv4 = Conv(inputs, outputs), Conv(outputs, outputs, 3), Conv(outputs, outputs)
        self.cv2 = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.cv5, self.cv6 = Conv((1 + len(POOLS)) * outputs, outputs), Conv(outputs, outputs, 3)
        self.bn = nn.BatchNorm2d(2 * outputs)
        self.cv7 = Conv(2 * outputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.cv4(self.cv3(self.cv1(x)))
        pooled = [functional.max_pool2d(y, window, stride=1, padding=window // 2) for window in POOLS]
        y = self.cv6(self.cv5(torch.cat((y, *pooled), dim=1)))
        return self.cv7(self.joined(y, self.cv2(x)))


class Concat(nn.Module):
    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        return torch.cat(parts, dim=1)


class Detect(nn.Module):
    """The detection layer, which predicts a box, an objectness and class scores for each scale, cell and anchor."""

    def __init__(self, inputs: list[int], classes: int, anchors: int, strides: list[float]):
        super().__init__()
        if len(strides) != len(inputs) or min(strides) <= 0:
            raise ValueError(f"the strides {strides} are not a positive number for each of {len(inputs)} scales")
        self.strides, self.outputs = strides, 5 + classes
        self.register_buffer("anchors", torch.zeros(len(inputs), anchors, 2))
        self.register_buffer("anchor_grid", torch.zeros(len(inputs), 1, anchors, 1, 1, 2))
        self.m = nn.ModuleList(nn.Conv2d(channels, anchors * self.outputs, 1) for channels in inputs)

    def forward(self, *scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return boxes (B, N, 4: x1, y1, x2, y2), px, and scores (B, N, C). N runs over scale, anchor, row, column."""
        boxes, scores = [], []
        for layer, x, stride, anchors in zip(self.m, scales, self.strides, self.anchor_grid, strict=True):
            raw = layer(x).unflatten(1, (-1, self.outputs))
            decoded = decode(raw.to(torch.promote_types(raw.dtype, torch.float32)), stride, anchors)
            boxes.append(decoded[0].flatten(1, 3))
            scores.append(decoded[1].flatten(1, 3))
        return torch.cat(boxes, dim=1), torch.cat(scores, dim=1)


def decode(raw: torch.Tensor, stride: float, anchors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode raw values (B, A, 5 + C, rows, columns) of one scale to boxes (B, A, rows, columns, 4) and scores (…, C).

    With s the sigmoid, the centre of a box is (2 s - 0.5 + cell) * stride, and its sides are (2 s)² times the sides of
    its anchor (``anchors``: (1, A, 1, 1, 2) px). The score of a class is s(object) * s(class).
    """
    rows, columns = raw.shape[-2:]
    value = raw.sigmoid().movedim(2, -1)
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    cell = torch.stack((x, y), dim=-1).to(value)
    centre = (2 * value[..., :2] - 0.5 + cell) * stride
    half = (2 * value[..., 2:4]) ** 2 * anchors / 2
    return torch.cat((centre - half, centre + half), dim=-1), value[..., 4:5] * value[..., 5:]


STAGES = {"BottleneckCSP": BottleneckCSP, "BottleneckCSP2": BottleneckCSP2, "SPPCSP": SPPCSP}


class Network(nn.Module):
    """A net built from a plan.

    The plan has ``nc`` (number of classes), ``anchors`` (for each scale a flat list of widths and heights),
    ``depth_multiple``, ``width_multiple``, and two lists of layers, ``backbone`` and ``head``; the head ends with
    Detect. ``strides``: px per scale. Raises ValueError, KeyError, TypeError or IndexError for an invalid plan.
    """

    def __init__(self, plan: dict, strides: list[float]):
        super().__init__()
        self.classes, self.anchors = plan["nc"], len(plan["anchors"][0]) // 2
        self.sources: list[list[int]] = []
        built, channels = [], [3]
        for index, (source, number, kind, arguments) in enumerate(plan["backbone"] + plan["head"]):
            # converted to indices into the list of outputs, which begins with the image
            source_list = source if isinstance(source, list) else [source]
            sources = [index + 1 + place if place < 0 else place + 1 for place in source_list]
            self.sources.append(sources)
            if any(not 0 <= place <= index for place in sources):
                raise ValueError(f"layer {index} takes its input from a later layer")
            inputs = [channels[place] for place in sources]
            layer, outputs = self._layer(plan, kind, inputs, number, arguments, strides)
            built.append(layer)
            channels.append(outputs)
        if not isinstance(built[-1], Detect):
            raise ValueError("the last layer is not Detect")
        self.model = nn.ModuleList(built)

    def _layer(
        self, plan: dict, kind: str, inputs: list[int], number: int, arguments: list, strides: list[float]
    ) -> tuple[nn.Module, int]:
        if kind == "Concat":
            return Concat(), sum(inputs)
        if kind == "nn.Upsample":
            if arguments[1:] != [2, "nearest"]:
                raise ValueError(f"unknown nn.Upsample arguments {arguments}")
            return nn.Upsample(scale_factor=2, mode="nearest"), inputs[0]
        if kind == "Detect":
            return Detect(inputs, self.classes, self.anchors, strides), 0
        outputs = arguments[0]
        if outputs != self.anchors * (5 + self.classes):
            outputs = math.ceil(outputs * plan["width_multiple"] / 8) * 8
        if kind == "Conv" and number == 1 and len(arguments) <= 3:
            return Conv(inputs[0], outputs, *arguments[1:]), outputs
        if kind in STAGES and len(arguments) == 1:
            blocks = max(round(number * plan["depth_multiple"]), 1) if number > 1 else number
            return STAGES[kind](inputs[0], outputs, blocks), outputs
        raise ValueError(f"unknown layer type {kind} with the arguments {arguments}")

    def forward(self, pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Detect objects in images (B, 3, H, W) in 0..1; return boxes (B, N, 4) in pixels and scores (B, N, C)."""
        last_use = {source_index: index for index, sources in enumerate(self.sources) for source_index in sources}
        outputs: list[torch.Tensor | None] = [pictures]
        for index, (layer, sources) in enumerate(zip(self.model, self.sources, strict=True)):
            outputs.append(layer(*(outputs[source_index] for source_index in sources)))
            for source_index in sources:  # free feature maps after their last use, because they are large
                if last_use[source_index] == index:
                    outputs[source_index] = None
        return outputs[-1]
