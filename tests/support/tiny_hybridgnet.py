"""HybridGNet checkpoints for tests, as CheXmask publishes them: an ordered dict of 107 tensors in one torch file."""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch

from conversions import converter
from cxr.imaging.organs.hybridgnet.net import HybridGNet

OVALS = {"right lung": (44, 0.3, 0.45, 0.12, 0.3), "left lung": (50, 0.7, 0.45, 0.12, 0.3)}
OVALS |= {"heart": (26, 0.55, 0.62, 0.12, 0.12)}
"""Landmarks, centre and half axes (x, y) of the organs that the told net finds, in shares of its picture."""


def coarse_ovals() -> np.ndarray:
    """The 60 landmarks of the coarse graph: every other one of each oval."""
    parts = []
    for count, x, y, across, down in OVALS.values():
        turn = 2 * np.pi * np.arange(count // 2) / (count // 2)
        parts.append(np.stack([x - across * np.sin(turn), y - down * np.cos(turn)], axis=1))
    return np.concatenate(parts)


def told(points: np.ndarray) -> OrderedDict:
    """Weights of a net that answers with the given coarse landmarks (60, 2), whatever it is shown.

    A node's features are (x, y, s, -x, -y, -s, 0...) with s such that normalization leaves them as they are; the
    rectifier takes the negatives off, and each filter puts them back. After the first look-up x and y are read from
    the landmarks that it appends, after the second from those too.
    """
    weights = OrderedDict((name, torch.zeros_like(value)) for name, value in HybridGNet().state_dict().items())
    features = np.zeros((60, 16))
    features[:, :2] = points
    features[:, 2] = np.sqrt(8 - (points**2).sum(axis=1))
    weights["dec_lin.bias"] = torch.from_numpy(features.ravel()).float()
    root = 2**0.5  # on 32 features the same pairs are normalized to root times themselves
    sources = {"up6": (0, 1, 2, 1), "up5": (0, 1, 2, 1), "up4": (144, 145, 2, 1), "up3": (0, 1, 2, 1)}
    sources |= {"up2": (160, 161, 2, 1 / root)}
    for name, (x, y, s, scale) in sources.items():
        filters = weights[f"graphConv_{name}.lins.0.weight"]
        for row, column in enumerate((x, y, s)):
            # the appended landmarks are x and y themselves, s still has the features' scale
            filters[row, column] = scale if row == 2 else 1
            filters[row + 3] = -filters[row]
    for name, scale in (("SC_1.graphConv_pre", 1), ("SC_2.graphConv_pre", 1 / root), ("graphConv_up1", 1 / root)):
        weights[f"{name}.lins.0.weight"][0, 0] = weights[f"{name}.lins.0.weight"][1, 1] = scale
    return weights


def random_weights(seed: int = 0) -> OrderedDict:
    """Weights as a net has them before training."""
    torch.manual_seed(seed)
    return OrderedDict(HybridGNet().state_dict())


def publish(folder: Path, weights: dict) -> str:
    """Save a checkpoint as it is published, convert it as the workflow does, and return the engine's file."""
    torch.save(weights, folder / "hybridgnet.pt")
    converter("hybridgnet")(folder / "hybridgnet.pt", folder / "hybridgnet.safetensors")
    return str(folder / "hybridgnet.safetensors")
