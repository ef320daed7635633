"""Can a net tell an edited lung from a healthy one? Its AUROC on folds that it did not see; 0.5 if not.

It sees the lungs alone, at 64 x 64, of films of one hospital: those with a lesion after the edit, those without a
finding as they are. Films differ by more than their lesions (portable films, supine patients, tubes), so the AUROC for
the films *before* the edit and the direction of the change say more than the number alone.
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
    """Return float32 (64, 64): the lungs of a frame, scaled to their own mean and deviation, 0 elsewhere."""
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
    """Return the mean over folds of the AUROC of unseen sick films, as ``shown``, against healthy ones as they are."""
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
