"""A test of edited images: how well a net tells edited lungs from healthy lungs. An AUROC of 0.5 means not at all.

The net gets only the lungs, at 64 x 64, of X-rays of one hospital, edited if there is a lesion. X-rays differ by more
than lesions (portable X-rays, supine patients, tubes). So the AUROC for the X-rays *before* the edit and the direction
of the change say more than the number alone.
"""

from collections.abc import Callable

import cv2
import numpy as np
import torch
from films import Film
from torch import nn
from torch.nn import functional

from cxr.base.vocabulary import LUNGS
from cxr.imaging.anomaly.lite import crop_to_window, fit_window, make_lung_view
from cxr.metrics import labels

STEPS, BATCH, RATE = 240, 32, 2e-3


def lungs_alone(image: np.ndarray, film: Film) -> np.ndarray:
    """Return the lungs of a frame, float32 (64, 64), with mean 0 and standard deviation 1, and 0 outside the lungs."""
    lungs = np.stack([film.organs[label] for label in LUNGS])
    lung_view = make_lung_view(*crop_to_window(image, lungs, fit_window(lungs.any(axis=0))))
    inside = lung_view.lungs.any(axis=0)
    values = lung_view.image[inside]
    scaled = np.where(inside, (lung_view.image - values.mean()) / max(float(values.std()), 1e-3), 0)
    return cv2.resize(scaled.astype(np.float32), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)


def _net() -> nn.Module:
    layers: list[nn.Module] = []
    for inside, outside in ((1, 16), (16, 32), (32, 48), (48, 64)):
        layers += [nn.Conv2d(inside, outside, 3, 2, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(256, 1))


def _fitted(pictures: torch.Tensor, truth: torch.Tensor, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    net = _net()
    optimiser = torch.optim.AdamW(net.parameters(), RATE, weight_decay=1e-2)
    sides = [np.flatnonzero(truth.numpy() == value) for value in (0, 1)]
    for _ in range(STEPS):
        some = np.concatenate([random.choice(side, BATCH // 2) for side in sides])
        seen = pictures[some]
        if random.random() < 0.5:
            seen = seen.flip(3)
        loss = functional.binary_cross_entropy_with_logits(net(seen)[:, 0], truth[some])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net.eval()


def auroc(sick: list[Film], healthy: list[Film], shown: Callable[[Film], np.ndarray], seed: int = 0) -> float:
    """Return the mean AUROC of held-out folds, with which a net separates ``sick`` X-rays from ``healthy`` X-rays.
    ``shown`` returns the image of a sick X-ray that the net gets, such as the edited image."""
    torch.set_num_threads(1)
    films = [film for film in [*sick, *healthy] if film.organs[LUNGS[0]].any() or film.organs[LUNGS[1]].any()]
    ill = {film.name for film in sick}
    pictures = torch.from_numpy(
        np.stack([lungs_alone(shown(film) if film.name in ill else film.image, film) for film in films])[:, None]
    )
    truth = torch.tensor([float(film.name in ill) for film in films])
    fold = np.array([film.fold for film in films])
    found = []
    for one in np.unique(fold):
        net = _fitted(pictures[fold != one], truth[fold != one], seed)
        with torch.no_grad():
            scores = net(pictures[fold == one])[:, 0].numpy()
        unseen = truth[fold == one].numpy() > 0
        found.append(labels.auroc(scores[unseen], scores[~unseen]))
    return round(float(np.mean(found)), 3)
