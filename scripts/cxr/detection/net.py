"""The detector's net, anchor-free like FCOS, and its loss.

A cell near the centre of a box learns the box's class and its four sides. The target of the class is the IoU of the
predicted box (quality focal loss), so that the confidence expresses the quality of the localization.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cxr.detection.grid import Grid

WIDTHS = (16, 32, 56, 96, 128)  # channels of the net that comes with the project, at 1/2 to 1/32 of the image size
CENTRE_RADIUS = 1.5  # a cell is positive if it is in the box and less than this number of cells from the box's centre
NUM_PEAK_CELLS = 4  # the mean of this many highest logits of a class is its logit for the whole image
PRESENT_TARGET = 0.6  # target of this logit if an image label says that the class is present


class Block(nn.Module):
    """Two 3 x 3 convolutions with a shortcut; ``stride`` 2 halves the resolution."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.short = nn.Identity() if stride == 1 and inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.short(x))


def _conv(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class Detector(nn.Module):
    """Net that maps images (N, 1, size, size) in 0..1 to logits (N, classes, cells, cells) and to distances in cells
    (N, groups * 4, cells, cells)."""

    def __init__(self, grid: Grid, widths: tuple[int, ...] = WIDTHS):
        super().__init__()
        self.grid, self.widths = grid, widths
        a, b, c, d, e = widths
        self.stem = nn.Sequential(_conv(1, a, 2), _conv(a, b, 2))
        self.eighth = Block(b, c, 2)
        self.sixteenth = nn.Sequential(Block(c, d, 2), Block(d, d))
        self.deep = nn.Sequential(Block(d, e, 2), Block(e, e))
        self.whole = nn.Linear(e, d)
        self.up = nn.Conv2d(e, d, 1)
        self.lateral = nn.Conv2d(d, d, 1)
        self.tower = Block(d, d)
        self.logit = nn.Conv2d(d, len(grid.classes), 1)
        self.sides = nn.Conv2d(d, 4 * (max(grid.groups) + 1), 1)
        nn.init.constant_(self.logit.bias, -3.5)
        nn.init.constant_(self.sides.bias, 1.0)
        self.register_buffer("slope", torch.ones(len(grid.classes)))
        self.register_buffer("offset", torch.zeros(len(grid.classes)))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        mean = image.mean(dim=(2, 3), keepdim=True)
        spread = ((image - mean) ** 2).mean(dim=(2, 3), keepdim=True).sqrt()
        x = self.sixteenth(self.eighth(self.stem((image - mean) / (spread + 0.02))))
        deep = self.deep(x)
        global_context = self.whole(deep.mean(dim=(2, 3)))[:, :, None, None]
        up = F.interpolate(self.up(deep), scale_factor=2.0, mode="nearest")
        x = self.tower(F.relu(self.lateral(x) + up + global_context))
        # Calibration: the sigmoid of the result is the fraction of boxes with this logit that hit.
        logit = self.logit(x) * self.slope[:, None, None] + self.offset[:, None, None]
        return logit, F.softplus(self.sides(x))


def assign_targets(boxes: list[list[tuple]], labelled_classes: list[list[int]], grid: Grid) -> dict[str, Tensor]:
    """Return the training targets of N images from their boxes (class index, x1, y1, x2, y2), measured in grid cells.

    "positive" (N, C, cells, cells) says whether a cell has a box of a class, and "truth" (N, C, 4, cells, cells) is
    this box, the smallest if several boxes of the class cover the cell. "weight" (N, C, 1, 1) is 1 for the classes in
    ``labelled_classes`` of the image, else 0.
    """
    count, classes, cells = len(boxes), len(grid.classes), grid.cells
    truth = torch.zeros(count, classes, 4, cells, cells)
    positive = torch.zeros(count, classes, cells, cells, dtype=torch.bool)
    weight = torch.zeros(count, classes, 1, 1)
    at = torch.arange(cells) + 0.5
    y, x = torch.meshgrid(at, at, indexing="ij")
    for image, (image_boxes, names) in enumerate(zip(boxes, labelled_classes, strict=True)):
        weight[image, names] = 1.0
        for label, *box in sorted(image_boxes, key=lambda b: -(b[3] - b[1]) * (b[4] - b[2])):
            cx, cy = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
            inside = (x > box[0]) & (x < box[2]) & (y > box[1]) & (y < box[3])
            inside &= (x - cx).abs().maximum((y - cy).abs()) < CENTRE_RADIUS
            inside[min(max(int(cy), 0), cells - 1), min(max(int(cx), 0), cells - 1)] = True
            positive[image, label] |= inside
            truth[image, label][:, inside] = torch.tensor(box)[:, None].float()
    return {"truth": truth, "positive": positive, "weight": weight}


def paired_overlap(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return (IoU, generalised IoU) of paired boxes (..., 4)."""
    ax1, ay1, ax2, ay2 = first.unbind(-1)
    bx1, by1, bx2, by2 = second.unbind(-1)
    shared = (ax2.minimum(bx2) - ax1.maximum(bx1)).clamp(0) * (ay2.minimum(by2) - ay1.maximum(by1)).clamp(0)
    union = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - shared
    hull = (ax2.maximum(bx2) - ax1.minimum(bx1)) * (ay2.maximum(by2) - ay1.minimum(by1))
    iou = shared / union.clamp(1e-6)
    return iou, iou - (hull - union) / hull.clamp(1e-6)


def detection_loss(
    logit: Tensor, distance: Tensor, target: dict[str, Tensor], grid: Grid, importance: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    """Return (quality focal loss of logits, generalised-IoU loss of the boxes of positive cells). Training minimises
    their sum. ``importance`` is the weight of a positive cell, per class."""
    cells = grid.cells
    at = torch.arange(cells) + 0.5
    y, x = torch.meshgrid(at, at, indexing="ij")
    n = len(logit)
    ltrb = distance.reshape(n, -1, 4, cells, cells)[:, list(grid.groups)]
    boxes = torch.stack([x - ltrb[:, :, 0], y - ltrb[:, :, 1], x + ltrb[:, :, 2], y + ltrb[:, :, 3]], dim=2)
    positive = target["positive"]
    quality = torch.zeros_like(logit)
    sides = logit.sum() * 0
    weight = torch.where(positive, torch.tensor(importance)[:, None, None], 1.0)
    if positive.any():
        iou, giou = paired_overlap(
            boxes.permute(0, 1, 3, 4, 2)[positive], target["truth"].permute(0, 1, 3, 4, 2)[positive]
        )
        sides = ((1 - giou) * weight[positive]).sum() / weight[positive].sum()
        quality[positive] = iou.detach().clamp(0.05, 1.0)
    gap = (quality - torch.sigmoid(logit)).abs() ** 2
    focal = F.binary_cross_entropy_with_logits(logit, quality, reduction="none") * gap * weight * target["weight"]
    return focal.sum() / positive.sum().clamp(1), 1.5 * sides


def image_label_loss(logit: Tensor, films: Sequence[dict[int, bool]]) -> Tensor:
    """Return the mean cross-entropy between the logits and the labels of whole images. ``films`` gives these labels for
    each image, {class index: whether the class is present}."""
    peak = logit.flatten(2).topk(NUM_PEAK_CELLS, dim=2).values.mean(dim=2)
    pairs = [
        (image, label, PRESENT_TARGET * is_present)
        for image, film in enumerate(films)
        for label, is_present in film.items()
    ]
    images, labels, targets = (list(column) for column in zip(*pairs, strict=True))
    return F.binary_cross_entropy_with_logits(peak[images, labels], torch.tensor(targets))
