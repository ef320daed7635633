"""DenseNet-121 (Huang et al., 2017) in plain torch, as published by torchxrayvision for one-channel X-rays."""

from collections import OrderedDict

import cv2
import numpy as np
import torch
from torch import nn

GROWTH, BLOCKS, STEM, BOTTLENECK = 32, (6, 12, 24, 16), 64, 4
SIDE, RANGE = 224, 1024.0  # side of the input, px; its largest value (inputs range from -1024 to 1024)


class _DenseLayer(nn.Sequential):
    """Norm, ReLU, 1 x 1 convolution, norm, ReLU and 3 x 3 convolution, whose result is appended to the input."""

    def __init__(self, channels: int):
        wide = BOTTLENECK * GROWTH
        first = {"norm1": nn.BatchNorm2d(channels), "relu1": nn.ReLU()}
        first |= {"conv1": nn.Conv2d(channels, wide, 1, bias=False)}
        second = {"norm2": nn.BatchNorm2d(wide), "relu2": nn.ReLU()}
        super().__init__(OrderedDict(first | second | {"conv2": nn.Conv2d(wide, GROWTH, 3, padding=1, bias=False)}))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, super().forward(x)], dim=1)


class DenseNet121(nn.Module):
    """Net that maps grey images (B, 1, 224, 224) in -1024..1024 to logits (B, outputs)."""

    def __init__(self, outputs: int):
        super().__init__()
        parts = OrderedDict(
            conv0=nn.Conv2d(1, STEM, 7, stride=2, padding=3, bias=False),
            norm0=nn.BatchNorm2d(STEM),
            relu0=nn.ReLU(),
            pool0=nn.MaxPool2d(3, stride=2, padding=1),
        )
        channels = STEM
        for number, size in enumerate(BLOCKS, 1):
            block = {f"denselayer{at + 1}": _DenseLayer(channels + at * GROWTH) for at in range(size)}
            parts[f"denseblock{number}"] = nn.Sequential(OrderedDict(block))
            channels += size * GROWTH
            if number < len(BLOCKS):
                layers = {"norm": nn.BatchNorm2d(channels), "relu": nn.ReLU()}
                layers |= {"conv": nn.Conv2d(channels, channels // 2, 1, bias=False), "pool": nn.AvgPool2d(2, stride=2)}
                parts[f"transition{number}"] = nn.Sequential(OrderedDict(layers))
                channels //= 2
        parts["norm5"] = nn.BatchNorm2d(channels)
        self.features = nn.Sequential(parts)
        self.classifier = nn.Linear(channels, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.pool_features(x))

    def pool_features(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features (B, 1024), the classifier's input, of images (B, 1, 224, 224)."""
        return torch.relu(self.features(x)).mean(dim=(2, 3))


def prepare_frame(frame: np.ndarray) -> torch.Tensor:
    """Convert a frame uint8 (512, 512) to the net's input float32 (1, 1, 224, 224)."""
    small = cv2.resize(frame.astype(np.float32), (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    return torch.from_numpy((2 * small / 255 - 1) * np.float32(RANGE))[None, None]


def normalise_scores(scores: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """Rescale scores (…, outputs) in 0..1 so that the operating ``points`` (outputs,) become 0.5. 0 and 1 stay."""
    return torch.where(scores < points, scores / (2 * points), 1 - (1 - scores) / (2 * (1 - points)))
