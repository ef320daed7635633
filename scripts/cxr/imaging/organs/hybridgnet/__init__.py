"""The paper's organ engine: HybridGNet with the CheXmask weights. Its 120 landmarks are the outlines of three masks."""

import threading
from contextlib import nullcontext

import numpy as np
import torch

from cxr.base.engines import Setup
from cxr.geometry.affine import fit_affine, frame_scales, to_frame
from cxr.geometry.affine import to_original as from_frame
from cxr.imaging.organs.engine import LANDMARKS, OUTLINES, NoOrgans, fill_outlines
from cxr.imaging.organs.hybridgnet.net import SIZE, HybridGNet
from cxr.nets.devices import inference, select_device
from cxr.nets.tensors import load_strict

INPUTS = {"weights": "results/weights/hybridgnet.safetensors"}
GPU = True
BLACK = 1  # maximum grey level of a black border; CheXmask crops black borders before it scales an image


def make_square_input(frame: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the net's input, uint8 (1024, 1024), and the affine (2, 3) from the input to the frame.

    As in CheXmask, black borders are removed, and the image is centred on black in its true aspect ratio. The padding
    of a frame is a black border too. So padded, stretched and cropped frames give the same input, except for parts
    removed by a crop. ``scales``: original pixels per frame pixel (x, y). Raises NoOrgans if the frame is black.
    """
    rows, columns = (np.flatnonzero((frame > BLACK).any(axis=axis)) for axis in (1, 0))
    if not rows.size:
        raise NoOrgans("the image is black")
    corner = np.array([columns[0], rows[0]])
    picture = frame[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    sides = picture.shape * scales[::-1]
    to_picture = fit_affine(tuple(sides), SIZE, "pad") / scales[:, None]
    to_whole = to_picture.copy()
    to_whole[:, 2] += corner
    return to_frame(picture, to_picture, SIZE), to_whole


class HybridGNetOrgans:
    """An engine for right lung, left lung and heart. The masks are independent, so the heart may overlap a lung."""

    labels = tuple(OUTLINES)

    def __init__(self, weights: str, setup: Setup):
        self._device = select_device(setup.device, setup.requested_gpus)
        with torch.device("meta"):
            self._net = HybridGNet()
        load_strict(self._net, weights)
        self._net = self._net.to(self._device, torch.float32).eval()
        # threads share a GPU, so one call runs at a time; on the CPU each thread has a core
        self._turn = threading.Lock() if self._device.type == "cuda" else nullcontext()
        # on a CPU, batches are not faster, and the results for single images do not depend on the batch
        self.batch = setup.batch if self._device.type == "cuda" else None

    def landmarks(self, pictures: list[np.ndarray]) -> np.ndarray:
        """Predict landmarks, float32 (N, 120, 2: x, y) in pixels, of N images, uint8 (1024, 1024)."""
        if not pictures:
            return np.zeros((0, LANDMARKS, 2), np.float32)
        batches = torch.from_numpy(np.stack(pictures)[:, None].astype(np.float32) / 255).split(self.batch or 1)
        with self._turn, inference():
            return np.concatenate([self._net(part.to(self._device)).cpu().numpy() for part in batches]) * SIZE

    def segment(self, image: np.ndarray, image_id: str, to_original: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """Return a frame's masks; see :class:`cxr.imaging.organs.engine.OrganEngine`. Raises NoOrgans."""
        (masks,) = self.segment_batch([(image, image_id, to_original, shape)])
        if isinstance(masks, NoOrgans):
            raise masks
        return masks

    def segment_batch(self, rows: list[tuple]) -> list[np.ndarray | NoOrgans]:
        """Return the masks, or NoOrgans if black, of each frame; see :class:`cxr.imaging.organs.engine.OrganEngine`."""
        results: list = []
        for image, _, to_original, _ in rows:
            try:
                results.append(make_square_input(image, frame_scales(to_original)))
            except NoOrgans as reason:
                results.append(reason)
        places = [place for place, square in enumerate(results) if not isinstance(square, NoOrgans)]
        for place, points in zip(places, self.landmarks([results[place][0] for place in places]), strict=True):
            (square, affine), (image, _, to_original, original_shape) = results[place], rows[place]
            # outlines may extend beyond the image, into the padding of the frame
            inside = to_frame(np.ones(original_shape, np.uint8), to_original, image.shape[0], nearest=True)
            masks = fill_outlines(points, square.shape)
            results[place] = np.stack([from_frame(mask, affine, image.shape) & inside for mask in masks]).astype(bool)
        return results


def load(options: object, setup: Setup) -> HybridGNetOrgans:
    """Load the engine. Raises UserError if weights are missing, damaged or wrong, or if a requested GPU is absent."""
    return HybridGNetOrgans(setup.files["weights"], setup)
