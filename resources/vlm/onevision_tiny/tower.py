"""How the tower of RadVLM's small model learns to see, before it is joined to words: regions, and lesions.

From the picture as a whole it learns the boxes of all regions, which types of lesion are there, and the box around
each; from the whole and from its quarters, as the model gets them, which pixels are of a lesion.
"""

import random
from collections.abc import Sequence

import cv2
import numpy as np
import torch
from data import Box, cut, seen_in, window
from lesions import Lesions
from torch.nn import functional
from updates import rate, step, tell

from cxr.base.vocabulary import LESIONS

UPDATES, BATCH, RATE = 16000, 32, 2e-3
EACH = 0.3
"""Weight of what each feature tells alone, beside what all tell together."""
BOXES, PRESENT, PIXELS, RARE = 5.0, 2.0, 7.0, 4.0
"""Weights of the losses of boxes, of types and of pixels, and of a lesion's pixels among these."""
FINE = 4
"""Cells along the side of a patch in which its lesions are told."""


class Heads(torch.nn.Module):
    """What is asked of a tower's features; it is left behind."""

    def __init__(self, width: int, regions: np.ndarray, lesions: np.ndarray):
        super().__init__()
        self.regions, self.lesions = _boxes(width, regions), _boxes(width, lesions)
        self.present = torch.nn.Linear(width, len(LESIONS))
        self.pixels = torch.nn.Linear(width, len(LESIONS) * FINE**2)
        torch.nn.init.constant_(self.pixels.bias, -3.0)

    def maps(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits (N, LESIONS, side, side) of features (N, patches, width)."""
        number, patches, _ = features.shape
        side = round(patches**0.5)
        told = self.pixels(features).view(number, side, side, len(LESIONS), FINE, FINE)
        return told.permute(0, 3, 1, 4, 2, 5).reshape(number, len(LESIONS), side * FINE, side * FINE)


def _boxes(width: int, mean: np.ndarray) -> torch.nn.Linear:
    """Return a layer that tells boxes, and begins with their mean."""
    layer = torch.nn.Linear(width, mean.size)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor(np.nan_to_num(mean, nan=0.5).ravel()))
    return layer


def fit(
    net: torch.nn.Module, pictures: Sequence[Lesions], regions: dict[str, np.ndarray], tile: int, patch: int, seed: int
) -> None:
    """Let a tower learn pictures, moved anew each time.

    ``regions``: boxes (regions, 4) of images by id, as fractions, NaN where there is none. ``tile``, ``patch``: its
    sides in pixels.
    """
    draw, boxes = random.Random(seed), [one.boxes() for one in pictures]
    heads = Heads(net.config.hidden_size, *(np.nanmean(list(of), axis=0) for of in (regions.values(), boxes)))
    values = [*net.parameters(), *heads.parameters()]
    optimiser = torch.optim.AdamW(values, lr=0.0, weight_decay=0.01)
    for update in range(UPDATES):
        quarter = draw.randrange(4) if update % 2 else None
        chosen = draw.choices(range(len(pictures)), k=BATCH)
        windows = [part(window(draw), quarter) for _ in chosen]
        shown = [cut(pictures[at].picture, of, (tile, tile)) for at, of in zip(chosen, windows, strict=True)]
        inputs = torch.tensor(np.stack(shown), dtype=torch.float32)[:, None].expand(-1, 3, -1, -1) / 127.5 - 1
        features = net(pixel_values=inputs, output_hidden_states=True).hidden_states[-1]
        side = tile // patch * FINE
        masks = np.stack([_moved(pictures[at].masks, of, side) for at, of in zip(chosen, windows, strict=True)])
        loss = PIXELS * functional.binary_cross_entropy_with_logits(
            heads.maps(features), torch.tensor(masks, dtype=torch.float32) / 255, pos_weight=torch.tensor(RARE)
        )
        if quarter is None:
            seen = [seen_in(boxes[at], of) for at, of in zip(chosen, windows, strict=True)]
            held = [seen_in(regions[pictures[at].image_id], of) for at, of in zip(chosen, windows, strict=True)]
            there = torch.tensor(~np.isnan(np.stack(seen)[..., 0]), dtype=torch.float32)
            told = heads.present(features).mean(1)
            loss = loss + PRESENT * functional.binary_cross_entropy_with_logits(told, there)
            loss = loss + BOXES * (_apart(heads.regions(features), held) + _apart(heads.lesions(features), seen))
        step(optimiser, loss, values, RATE * rate(update, UPDATES))
        tell("tower", update, UPDATES, float(loss.detach()))


def part(of: Box, quarter: int | None) -> tuple[float, float, float, float]:
    """Return a quarter (0 to 3, by rows) of a window (x, y, width, height), or all of it."""
    x, y, width, height = of
    if quarter is None:
        return x, y, width, height
    return x + width / 2 * (quarter % 2), y + height / 2 * (quarter // 2), width / 2, height / 2


def _moved(masks: np.ndarray, of: Box, side: int) -> np.ndarray:
    """Return masks (LESIONS, H, W) within a window, (LESIONS, side, side)."""
    (rows, columns), (x, y, width, height) = masks.shape[1:], of
    affine = np.array(
        [[side / (width * columns), 0, -x / width * side], [0, side / (height * rows), -y / height * side]]
    )
    return np.stack([cv2.warpAffine(mask, affine, (side, side), flags=cv2.INTER_LINEAR) for mask in masks])


def _apart(told: torch.Tensor, boxes: Sequence[np.ndarray]) -> torch.Tensor:
    """Return the mean distance of boxes (N, boxes, 4) from those that features (N, patches, boxes * 4) tell."""
    wanted = torch.tensor(np.stack(boxes), dtype=torch.float32).flatten(1)[:, None]
    known = ~wanted.isnan()
    if not known.any():
        return told.sum() * 0
    together = (told.mean(1, keepdim=True) - wanted)[known].abs().mean()
    return together + EACH * (told - wanted)[known.expand_as(told)].abs().mean()
