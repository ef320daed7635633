"""Random distortions for training the organ net: geometry, exposure, disease and foreign objects. Sides are kept."""

import math

import numpy as np
import torch
from torch.nn import functional

TURNED, HALVED = 0.05, 0.05  # fractions of images that are changed so that they show no whole chest


def smooth_noise(count: int, cells: int, size: int) -> torch.Tensor:
    """Return smooth random fields (N, 1, S, S) with about ``cells`` bumps along a side, and values around -1..1."""
    return functional.interpolate(torch.randn(count, 1, cells, cells), size=(size, size), mode="bicubic")


def uniform(count: int, low: float, high: float) -> torch.Tensor:
    """Return random numbers (N, 1, 1, 1) between ``low`` and ``high``."""
    return torch.rand(count, 1, 1, 1) * (high - low) + low


def chance(count: int, probability: float) -> torch.Tensor:
    """Return random numbers (N, 1, 1, 1) that are 1 with a probability, otherwise 0."""
    return (torch.rand(count, 1, 1, 1) < probability).float()


def _grid(count: int, size: int) -> torch.Tensor:
    angle = torch.randn(count) * 0.09
    scale = torch.exp(torch.rand(count) * 0.55 - 0.2)  # above 1: the chest becomes smaller in the picture
    aspect = torch.exp(torch.randn(count) * 0.08)
    shear, shift = torch.randn(count) * 0.04, torch.randn(count, 2) * 0.08
    cos, sin = torch.cos(angle), torch.sin(angle)
    rows = [
        torch.stack([cos * scale * aspect, (shear - sin) * scale, shift[:, 0]], 1),
        torch.stack([sin * scale * aspect, cos * scale, shift[:, 1]], 1),
    ]
    grid = functional.affine_grid(torch.stack(rows, 1), [count, 1, size, size], align_corners=False)
    bend = torch.cat([smooth_noise(count, 5, size), smooth_noise(count, 5, size)], 1) * uniform(count, 0.0, 0.035)
    return grid + bend.permute(0, 2, 3, 1)


def _disease(image: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Whiten parts of the lungs, because a lung's outline must also be found behind an opacity."""
    count, size = len(image), image.shape[-1]
    lungs = target[:, :2].amax(1, keepdim=True)
    cloud = torch.sigmoid(5 * (smooth_noise(count, 6, size) - uniform(count, 0.3, 1.5)))
    rows = torch.linspace(0, 1, size).view(1, 1, size, 1)
    bottom = torch.sigmoid(25 * (rows - uniform(count, 0.5, 0.9)))
    side = torch.randint(0, 2, (count, 1, 1, 1))
    one_lung = torch.where(side == 0, target[:, :1], target[:, 1:2])
    haze = lungs * cloud * chance(count, 0.45) + one_lung * bottom * chance(count, 0.25)
    white = uniform(count, 0.6, 0.95)
    return image + (white - image) * (haze.clamp(0, 1) * uniform(count, 0.2, 0.9)) * (image > 0.02)


def _things(image: torch.Tensor) -> torch.Tensor:
    """Draw a few lines (tubes, wires) and patches (markers, text) over the images."""
    count, size = len(image), image.shape[-1]
    ys = torch.linspace(-1, 1, size).view(1, 1, size, 1)
    xs = torch.linspace(-1, 1, size).view(1, 1, 1, size)
    for _ in range(2):
        angle, offset = uniform(count, 0, math.pi), uniform(count, -0.7, 0.7)
        curve = uniform(count, -0.4, 0.4)
        along = xs * torch.cos(angle) + ys * torch.sin(angle)
        distance = (ys * torch.cos(angle) - xs * torch.sin(angle) - offset - curve * along * along).abs()
        line = (distance < 0.012).float() * chance(count, 0.3)
        image = image + line * uniform(count, 0.05, 0.4)
    centre_x, centre_y = uniform(count, -0.95, 0.95), uniform(count, -0.95, 0.95)
    patch = ((xs - centre_x).abs() < uniform(count, 0.02, 0.12)) & ((ys - centre_y).abs() < uniform(count, 0.02, 0.06))
    return torch.where(patch & (chance(count, 0.35) > 0), uniform(count, 0.0, 1.0), image)


def _exposure(image: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
    """Change tone curve, contrast, evenness, sharpness and noise."""
    count, size = len(image), image.shape[-1]
    image = image.clamp(0, 1) ** torch.exp(uniform(count, -0.8, 0.8))
    image = image * uniform(count, 0.5, 1.1) + uniform(count, 0.0, 0.25)
    image = image + smooth_noise(count, 3, size) * uniform(count, 0.0, 0.12)
    blurred = functional.avg_pool2d(functional.pad(image, (2, 2, 2, 2), mode="replicate"), 5, 1)
    image = image + (blurred - image) * uniform(count, -0.8, 1.0)  # below 0: sharpened
    image = image + torch.randn_like(image) * uniform(count, 0.0, 0.05)
    return image.clamp(0, 1) * inside


def _frame(image: torch.Tensor) -> torch.Tensor:
    """Black out a margin, as padding and collimators do."""
    count, size = len(image), image.shape[-1]
    ys = torch.linspace(-1, 1, size).view(1, 1, size, 1)
    xs = torch.linspace(-1, 1, size).view(1, 1, 1, size)
    limit_x, limit_y = uniform(count, 0.88, 1.1), uniform(count, 0.88, 1.1)
    shown = ((xs.abs() < limit_x) & (ys.abs() < limit_y)).float()
    return image * torch.where(chance(count, 0.3) > 0, shown, torch.ones_like(shown))


def spoil(row: tuple[torch.Tensor, ...], random: np.random.Generator) -> tuple[torch.Tensor, ...]:
    """Sometimes change a row (image, target, weight) so that it does not show a whole chest.

    An image on its side or upside down has no organs to find. One that is cut in the middle has the organs of one side.
    """
    image, target, weight = row
    size, draw = image.shape[-1], random.random()
    if draw < TURNED:
        turned = torch.rot90(image, int(random.integers(1, 4)), (1, 2))
        return turned, torch.zeros_like(target), torch.full_like(weight, float(weight.max()))
    if draw < TURNED + HALVED:
        cut = size // 2 + int(random.integers(-size // 16, size // 16))
        kept = slice(0, cut) if random.random() < 0.5 else slice(cut, size)
        parts = [torch.zeros_like(part) for part in (image, target)]
        start = (size - (kept.stop - kept.start)) // 2
        place = slice(start, start + kept.stop - kept.start)
        for new, old in zip(parts, (image, target), strict=True):
            new[..., place] = old[..., kept]
        known = torch.full_like(weight, float(weight.max()))
        known[..., place] = weight[..., kept]
        return parts[0], parts[1], known
    return row


def stretch(image: torch.Tensor, percentiles: tuple[float, float]) -> torch.Tensor:
    """Scale each image to 0..1 between percentiles of its pixels above 0, like ``cxr.nets.map_net.prepare_frame``."""
    for index, picture in enumerate(image):
        values = picture[picture > 0]
        if values.numel() < 2:
            continue
        low, high = torch.quantile(values, torch.tensor(percentiles) / 100)
        image[index] = ((picture - low) / (high - low).clamp(min=1e-3)).clamp(0, 1)
    return image


def augment(
    rows: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], size: int, percentiles: tuple[float, float]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Convert rows (image, target (K), weight (K)) to a batch of distorted images of ``size`` pixels."""
    image, target, weight = (torch.stack(parts) for parts in zip(*rows, strict=True))
    count = len(image)
    grid = _grid(count, size)
    stack = torch.cat([image, torch.ones_like(image), target, weight], 1)
    stack = functional.grid_sample(stack, grid, align_corners=False)
    labels = target.shape[1]
    inside = (stack[:, 1:2] > 0.5).float()
    target, weight = stack[:, 2 : 2 + labels], stack[:, 2 + labels :]
    # Beyond the picture there is no organ: that is a label too.
    weight = torch.where(inside > 0, weight, weight.amax((2, 3), keepdim=True))
    # Half of the pictures go on beyond their edge, as tissue does where a film shows more of the body.
    more = functional.grid_sample(image, grid, align_corners=False, padding_mode="border")
    more = more * (1 + 0.3 * smooth_noise(count, 4, size)) * uniform(count, 0.6, 1.1)
    image = torch.where(inside > 0, stack[:, :1], more)
    shown = torch.maximum(inside, chance(count, 0.5))
    image = _frame(_exposure(_things(_disease(image, target)), shown))
    return stretch(image, percentiles), (target > 0.5).float(), weight
