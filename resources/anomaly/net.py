"""The anomaly net: a U-Net on the lungs of one picture that sees each place beside its mirror image."""

import copy
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

WIDTHS = (32, 48, 72, 112, 128)


class Block(nn.Sequential):
    """A convolution with batch norm."""

    def __init__(self, inside: int, outside: int, kernel: int = 3, stride: int = 1):
        super().__init__(
            nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
        )


class AnomalyNet(nn.Module):
    """Image (N, 1, S, S) and lungs (N, 2, S, S) to two maps (N, 1, S / 2, S / 2).

    The logit says whether a lesion lies there, the amplitude (>= 0, in units of the picture's range) how much it would
    add. Besides the picture the net gets its mirror image, where the other lung shows what is normal, and the place.
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
    """What the engine runs: the mean over the picture and its mirror image, as brightness to take off.

    Where a lesion is less likely than ``floor`` nothing is taken off, where it is more likely than ``full`` all of its
    amplitude, times ``gain``; in between the share grows in proportion.
    """

    def __init__(self, net: AnomalyNet, floor: float, full: float, gain: float):
        super().__init__()
        self.net, self.floor, self.full, self.gain = copy.deepcopy(net).eval(), floor, full, gain

    def forward(self, image: torch.Tensor, lungs: torch.Tensor) -> torch.Tensor:
        logit, amplitude = self.net(image, lungs)
        mirrored_logit, mirrored_amplitude = self.net(image.flip(3), lungs.flip(3).flip(1))
        probability = (torch.sigmoid(logit) + torch.sigmoid(mirrored_logit).flip(3)) / 2
        share = ((probability - self.floor) / (self.full - self.floor)).clamp(0, 1)
        return self.gain * share * (amplitude + mirrored_amplitude.flip(3)) / 2
