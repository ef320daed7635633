"""HybridGNet with two image-to-graph skip connections, in plain torch. CheXmask was made with this net.

An encoder maps an image of 1024 x 1024 pixels to 64 numbers. A graph decoder maps these numbers to 120 landmarks on
three rings. It twice samples the encoder's features around the landmarks. Parameter names match the published weights.
Source: Gaggion et al., IEEE TMI 2022 and Scientific Data 2024.
"""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

SIZE = 1024  # side of the net's input, px
RINGS = (44, 50, 26)  # number of landmarks of right lung, left lung and heart; the coarse graph has half as many
LATENT, WIDE, NARROW, ORDER = 64, 32, 16, 6
"""Size of the latent vector; features per node of the fine graph and of the coarse graph; terms of a graph filter."""
CHANNELS = (1, 8, 16, 32, 64, 128, 128)  # input channels of the encoder's six blocks, then output channels
BACK, ON, SAMPLES = 1.0, 2.0, 4  # window before and after a landmark, feature pixels; maximum number of samples in it


def scaled_laplacian(rings: tuple[int, ...]) -> torch.Tensor:
    """Return the normalized graph Laplacian, (N, N), of closed rings of ``rings`` nodes, scaled to -1..1.

    With 2 as the largest eigenvalue it equals -D^(-1/2) A D^(-1/2): -1/2 between neighbours on a ring, else 0.
    """
    parts = []
    for count in rings:
        shift = torch.eye(count, device="cpu").roll(1, dims=1)
        parts.append(-(shift + shift.T) / 2)
    return torch.block_diag(*parts)


def doubling(rings: tuple[int, ...]) -> torch.Tensor:
    """Return the matrix (N, N / 2) that adds midpoints between nodes of rings. ``rings``: new numbers of nodes."""
    parts = []
    for count in rings:
        coarse = torch.eye(count // 2, device="cpu")
        between = (coarse + coarse.roll(1, dims=1)) / 2
        parts.append(torch.stack([coarse, between], dim=1).flatten(0, 1))
    return torch.block_diag(*parts)


def _norm(channels: int) -> nn.Module:
    # The published blocks use batch statistics, and were applied to one image at a time. For one image, instance
    # normalization gives the same result, and it does not depend on the batch.
    return nn.InstanceNorm2d(channels, affine=True)


class Block(nn.Module):
    """A residual block with two 3 x 3 convolutions: (B, C, H, W) -> (B, C', H, W)."""

    def __init__(self, before: int, after: int):
        super().__init__()
        self.skip = None
        if before != after:
            self.skip = nn.Sequential(nn.Conv2d(before, after, 1, bias=False), _norm(after))
        first, second = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
        self.block = nn.Sequential(_norm(before), nn.ReLU(), first, _norm(after), nn.ReLU(), second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.block(x) + (x if self.skip is None else self.skip(x)))


class Encoder(nn.Module):
    """Maps an image (B, 1, 1024, 1024) to a latent (B, 64) and features (B, 128, 64, 64) and (B, 128, 32, 32)."""

    def __init__(self):
        super().__init__()
        for number, (before, after) in enumerate(pairwise(CHANNELS), 1):
            setattr(self, f"dconv_down{number}", Block(before, after))
        flat = CHANNELS[-1] * (SIZE // 32) ** 2
        self.fc_mu = nn.Linear(flat, LATENT)
        self.fc_logvar = nn.Linear(flat, LATENT)  # only used in training: inference uses the mean

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        for block in (self.dconv_down1, self.dconv_down2, self.dconv_down3, self.dconv_down4):
            x = F.max_pool2d(block(x), 2)
        fine = self.dconv_down5(x)
        coarse = self.dconv_down6(F.max_pool2d(fine, 2))
        return self.fc_mu(coarse.flatten(1)), fine, coarse


class GraphConv(nn.Module):
    """A graph filter by Chebyshev polynomials of the scaled Laplacian: (B, N, C) -> (B, N, C')."""

    def __init__(self, before: int, after: int, order: int = ORDER, bias: bool = True):
        super().__init__()
        self.lins = nn.ModuleList(nn.Linear(before, after, bias=False) for _ in range(order))
        self.bias = nn.Parameter(torch.zeros(after)) if bias else None

    def forward(self, x: torch.Tensor, laplacian: torch.Tensor) -> torch.Tensor:
        """Sum the weighted terms T0 = x, T1 = L x, Tk = 2 L T(k-1) - T(k-2); each term has its own weights."""
        terms = [x]
        while len(terms) < len(self.lins):
            laplacian_product = laplacian @ terms[-1]
            terms.append(2 * laplacian_product - terms[-2] if len(terms) > 1 else laplacian_product)
        output = sum(lin(term) for lin, term in zip(self.lins, terms, strict=True))
        return output if self.bias is None else output + self.bias


def _taps(centre: torch.Tensor, length: int) -> torch.Tensor:
    """Return weights of the ``length`` pixels of an axis, whose weighted sum is the mean over a window at ``centre``.

    The window is divided into equal parts with a bilinear sample at each centre, as in RoIAlign with one aligned cell.
    The number of samples is the window's width, rounded up: three, or four if float32 makes it slightly wider.
    """
    begin, end = centre - BACK - 0.5, centre + ON - 0.5
    width = end - begin
    samples = torch.ceil(width).clamp(min=1)
    steps = torch.arange(SAMPLES, device=centre.device, dtype=centre.dtype)
    at = begin[..., None] + (steps + 0.5) * width[..., None] / samples[..., None]
    used = (steps < samples[..., None]) & (at >= -1) & (at <= length)
    low = at.clamp(0, length - 1).floor()
    share = at.clamp(0, length - 1) - low
    pixels = torch.arange(length, device=centre.device, dtype=centre.dtype)
    weight = (pixels == low[..., None]) * (1 - share)[..., None] + (pixels == low[..., None] + 1) * share[..., None]
    return (weight * used[..., None]).sum(-2) / samples[..., None]


def look_up(features: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """Return the mean (B, N, C) of ``features`` (B, C, H, H) around each of ``points`` (B, N, 2: x, y in 0..1)."""
    size = features.shape[-1]
    across, down = _taps(points[..., 0] * size, size), _taps(points[..., 1] * size, size)
    return torch.einsum("bnh,bchw,bnw->bnc", down, features, across)


class Skip(nn.Module):
    """Appends to each node its current landmark position, and the encoder's features around this position."""

    def __init__(self, features: int):
        super().__init__()
        self.graphConv_pre = GraphConv(features, 2, order=1, bias=False)

    def forward(self, x: torch.Tensor, laplacian: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        points = self.graphConv_pre(x, laplacian)
        return torch.cat((x, look_up(features, points), points), dim=2)


def _normalized(x: torch.Tensor) -> torch.Tensor:
    # normalizes over the features of each node, without learned weights
    return F.relu(F.layer_norm(x, x.shape[-1:]))


class HybridGNet(nn.Module):
    """Maps an image (B, 1, 1024, 1024) in 0..1 to landmarks (B, 120, 2: x, y), mostly in 0..1 of the image."""

    def __init__(self):
        super().__init__()
        skip_channels = CHANNELS[-1] + 2
        self.encoder = Encoder()
        self.dec_lin = nn.Linear(LATENT, NARROW * sum(RINGS) // 2)
        self.graphConv_up6 = GraphConv(NARROW, NARROW)
        self.graphConv_up5 = GraphConv(NARROW, NARROW)
        self.SC_1 = Skip(NARROW)
        self.graphConv_up4 = GraphConv(NARROW + skip_channels, WIDE)
        self.graphConv_up3 = GraphConv(WIDE, WIDE)
        self.SC_2 = Skip(WIDE)
        self.graphConv_up2 = GraphConv(WIDE + skip_channels, WIDE)
        self.graphConv_up1 = GraphConv(WIDE, 2, order=1, bias=False)
        self.register_buffer("fine", scaled_laplacian(RINGS), persistent=False)
        self.register_buffer("coarse", scaled_laplacian(tuple(count // 2 for count in RINGS)), persistent=False)
        self.register_buffer("doubling", doubling(RINGS), persistent=False)

    def decode(self, latent: torch.Tensor, fine: torch.Tensor, coarse: torch.Tensor) -> torch.Tensor:
        """Return the landmarks for the latent vector, the fine and the coarse features from :class:`Encoder`."""
        x = F.relu(self.dec_lin(latent)).unflatten(1, (-1, NARROW))
        x = _normalized(self.graphConv_up6(x, self.coarse))
        x = _normalized(self.graphConv_up5(x, self.coarse))
        x = self.SC_1(x, self.coarse, coarse)
        x = self.doubling @ _normalized(self.graphConv_up4(x, self.coarse))
        x = _normalized(self.graphConv_up3(x, self.fine))
        x = self.SC_2(x, self.fine, fine)
        x = _normalized(self.graphConv_up2(x, self.fine))
        return self.graphConv_up1(x, self.fine)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return self.decode(*self.encoder(picture))
