"""The anomaly net: a U-Net whose input is an image of the lungs together with its mirror image."""

import copy
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

WIDTHS = (32, 48, 72, 112, 128)


class Block(nn.Sequential):
    """A convolution with batch normalisation and ReLU."""

    def __init__(self, inside: int, outside: int, kernel: int = 3, stride: int = 1):
        super().__init__(
            nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
        )


class AnomalyNet(nn.Module):
    """Maps an image (N, 1, S, S) and lungs (N, 2, S, S) to two maps (N, 1, S / 2, S / 2).

    The first is the logit of a lesion. The second is the amplitude, the brightness that it would add, >= 0, as a
    fraction of the image's range. The net also gets coordinates and the mirror image, in which the other lung shows
    what is healthy.
    """

    def __init__(self, widths: tuple[int, ...] = WIDTHS):
        super().__init__()
        self.stem = Block(6, widths[0], 5, 2)
        self.down = nn.ModuleList(
            nn.Sequential(Block(a, b), Block(b, b)) for a, b in zip((widths[0], *widths[:-1]), widths, strict=True)
        )
        self.up = nn.ModuleList(nn.Sequential(Block(a + b, a), Block(a, a)) for a, b in pairwise(widths))
        self.drop = nn.Dropout2d(0.1)
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, image: torch.Tensor, lungs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        side = image.shape[-1]
        ramp = torch.linspace(-1, 1, side, dtype=image.dtype).expand(image.shape[0], 1, side, side)
        x = self.stem(torch.cat([image, image.flip(3), lungs, ramp, ramp.transpose(2, 3)], 1))
        skips = []
        for level, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if level else x)
            skips.append(x)
        x = self.drop(x)
        for level in reversed(range(len(self.up))):
            larger = functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = self.up[level](torch.cat([larger, skips[level]], 1))
        out = self.head(x).float()
        return out[:, :1], 0.5 * functional.softplus(out[:, 1:] - 2)


class Excess(nn.Module):
    """The net that the engine runs. It averages views of the image: every second is mirrored, and the nets take turns.

    A single net gets both views. The first map is the suspicion: 1 where the probability of a lesion is at least
    ``full``, otherwise (probability / full) ** ``power``. The second is the brightness to remove: suspicion * amplitude
    * ``gain``.
    """

    def __init__(self, nets: list[AnomalyNet], full: float, power: float, gain: float):
        super().__init__()
        self.nets, self.full, self.power, self.gain = nn.ModuleList(copy.deepcopy(nets)).eval(), full, power, gain

    def forward(self, image: torch.Tensor, lungs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        image_mirrored, lungs_mirrored = image.flip(3), lungs.flip(3).flip(1)
        probability, amplitude = [], []
        for view in range(max(2, len(self.nets))):
            net = self.nets[view % len(self.nets)]
            if view % 2:
                logit, excess = (one.flip(3) for one in net(image_mirrored, lungs_mirrored))
            else:
                logit, excess = net(image, lungs)
            probability.append(torch.sigmoid(logit))
            amplitude.append(excess)
        suspicion = (sum(probability) / len(probability) / self.full).clamp(0, 1) ** self.power
        return suspicion, self.gain * suspicion * (sum(amplitude) / len(amplitude))
