"""Chests of two ellipses, with their organ masks, as the stages' files."""

from pathlib import Path

import numpy as np

from cxr.base.hdf5 import ShardWriter
from cxr.base.vocabulary import HEART, LUNGS


def ellipse(shape, centre, radii):
    y, x = np.mgrid[: shape[0], : shape[1]]
    return ((x - centre[0]) / radii[0]) ** 2 + ((y - centre[1]) / radii[1]) ** 2 <= 1


def simple_chest(seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Two dark ellipses on grey, with noise: enough for the plumbing."""
    shape = (512, 512)
    masks = {
        "right lung": ellipse(shape, (160, 250), (80, 150)),
        "left lung": ellipse(shape, (350, 250), (80, 150)),
        HEART: ellipse(shape, (275, 330), (70, 60)),
    }
    random = np.random.default_rng(seed)
    image = np.full(shape, 190.0)
    image[masks["right lung"] | masks["left lung"]] = 80
    image[masks[HEART]] = 170
    return np.clip(image + random.normal(0, 8, shape), 0, 255).astype(np.uint8), masks


def write_inputs(folder: Path, chests: dict[str, tuple], missing: tuple[str, ...] = ()) -> dict[str, Path]:
    """Write frames of all chests and organ masks of those not missing."""
    labels = (*LUNGS, HEART, "cardiomediastinum")
    paths = {"frames": folder / "frames.h5", "organs": folder / "organs.h5"}
    with ShardWriter(paths["frames"]) as writer:
        for name, (image, _) in chests.items():
            writer.append(name, image=image)
    empty = {"mask": ((4, 512, 512), bool)}
    with ShardWriter(paths["organs"], labels=labels, empty=empty) as writer:
        for name, (_, masks) in chests.items():
            if name not in missing:
                writer.append(name, mask=np.stack([masks.get(label, np.zeros((512, 512), bool)) for label in labels]))
    return paths
