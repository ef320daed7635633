"""Train the net that recognises upright chest X-rays, and write upright.onnx and upright.json beside this file.

    python resources/organs/train_upright.py                   # make upright.onnx
    python resources/organs/train_upright.py --cross-validate  # make upright.json

This needs torch and onnx besides the pipeline's own packages, no GPU, and the shared data (``CXR_ILS_SHARED``, default
``../shared``). For upright.json, each half of the patients is scored by a net trained on the other half. upright.onnx
is trained on all NIH X-rays. Each takes a quarter of an hour on one core. UPRIGHT.md describes data and scores.
"""

import argparse
import csv
import json
import os
import sys
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from cxr.base.seeds import stable_hash  # noqa: E402
from cxr.imaging.organs.upright import SIZE, TURNS, make_net_input, rotate_and_reflect  # noqa: E402
from cxr.imaging.phantom.chest import draw_chest  # noqa: E402

SETS = ("nih", "nih_more")
"""Sets for training. Their images have no restrictions, so the weights have none either."""
OTHERS = ("covid", "covid_more")
"""Sets that are only scored."""
SEED, STEPS, BATCH, STRANGE, RATE = 3, 700, 24, 6, 2e-3
ASKED = 6
"""Number of versions of an image per step: the image, its mirror image, and other versions drawn at random."""
PHANTOMS = 150
WIDE = 128
"""Side of the stored images, px. They are larger than the net's input, so that they can be cropped."""


def films() -> tuple[list[str], list[str], np.ndarray]:
    """Return the names, patients and images, uint8 (N, WIDE, WIDE), of the real X-rays."""
    folder = (ROOT / os.environ.get("CXR_ILS_SHARED", "../shared")).resolve() / "data"
    names, patients, pictures = [], [], []
    for name in (*SETS, *OTHERS):
        with open(folder / name / f"{name}.csv", newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                grey = cv2.imread(str(folder / name / "images" / row["image"]), cv2.IMREAD_GRAYSCALE)
                pictures.append(cv2.resize(grey, (WIDE, WIDE), interpolation=cv2.INTER_AREA))
                names.append(f"{name}/{row['image']}")
                patients.append(f"{name.removesuffix('_more')}/{row['patient_id']}")
    return names, patients, np.stack(pictures)


def phantoms() -> np.ndarray:
    """Return synthetic X-rays, uint8 (N, WIDE, WIDE), like those of the embedded cohort."""
    made = []
    for number in range(PHANTOMS):
        random = np.random.default_rng([SEED, number])
        chest = draw_chest(random, (512, (512, 430)[number % 2]), cardiomegaly=number % 3 == 0, ap=number % 4 == 1)
        made.append(
            cv2.resize(np.round(chest.image * 255).astype(np.uint8), (WIDE, WIDE), interpolation=cv2.INTER_AREA)
        )
    return np.stack(made)


def strange(random: np.random.Generator) -> np.ndarray:
    """Return an image without a chest, uint8 (WIDE, WIDE): noise, blobs, stripes, or lines of text."""
    kind = random.integers(4)
    if kind == 0:
        noise = random.normal(size=(WIDE, WIDE)).astype(np.float32)
        grain = float(random.choice([0, 1, 3, 8, 20]))
        picture = cv2.GaussianBlur(noise, (0, 0), grain) if grain else noise
    elif kind == 1:
        picture = np.full((WIDE, WIDE), random.uniform(0, 255), np.float32)
        for _ in range(random.integers(1, 12)):
            centre, axes = random.integers(0, WIDE, 2), random.integers(3, 60, 2)
            cv2.ellipse(
                picture, centre.tolist(), axes.tolist(), random.uniform(0, 360), 0, 360, random.uniform(0, 255), -1
            )
        picture = cv2.GaussianBlur(picture, (0, 0), random.uniform(0.5, 8))
    elif kind == 2:
        rows, columns = np.mgrid[:WIDE, :WIDE].astype(np.float32)
        waves = random.uniform(0.01, 0.8, 2)
        picture = np.sin(rows * waves[0] + columns * waves[1]) + random.normal(size=(WIDE, WIDE)) * random.uniform(0, 1)
    else:
        picture = np.full((WIDE, WIDE), random.integers(180, 255), np.uint8)
        for line in range(6, WIDE, int(random.integers(6, 16))):
            letters = "".join(random.choice(list("abcdefghijklmnop  "), 24))
            cv2.putText(picture, letters, (int(random.integers(0, 20)), line), cv2.FONT_HERSHEY_SIMPLEX,
                        random.uniform(0.2, 0.5), int(random.integers(0, 120)), 1)  # fmt: skip
    low, high = float(picture.min()), float(picture.max())
    return np.round((picture - low) / max(high - low, 1e-6) * 255).astype(np.uint8)


def varied(picture: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the net's input (SIZE, SIZE) for an image that is slightly rotated, cropped, toned and partly covered."""
    angle, scale = random.normal(0, 5), random.uniform(0.9, 1.3)
    affine = cv2.getRotationMatrix2D((WIDE / 2, WIDE / 2), angle, scale)
    affine[:, 2] += random.normal(0, 5, 2)
    border = cv2.BORDER_CONSTANT if random.random() < 0.5 else cv2.BORDER_REPLICATE
    picture = cv2.warpAffine(picture, affine, (WIDE, WIDE), borderMode=border)
    if random.random() < 0.5:  # a marker, or where one was
        x, y = random.integers(0, WIDE - 16, 2)
        picture[y : y + random.integers(4, 24), x : x + random.integers(4, 24)] = random.choice([0, 255, 128])
    values = make_net_input(picture) ** np.float32(np.exp(random.normal(0, 0.4)))
    return np.clip(values + random.normal(0, random.uniform(0, 0.05), values.shape), 0, 1).astype(np.float32)


def versions(small: np.ndarray) -> torch.Tensor:
    """Return all rotations and reflections of images (N, S, S), followed by their negatives, (N, 16, 1, S, S)."""
    eight = rotate_and_reflect(small).swapaxes(0, 1)
    return torch.from_numpy(np.concatenate([eight, 1 - eight], 1)[:, :, None])


class UprightNet(nn.Sequential):
    """A net from images (N, 1, 64, 64) in 0..1 to scores (N, 1)."""

    def __init__(self):
        layers: list[nn.Module] = [nn.Conv2d(1, 16, 5, 2, 2, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        for inside, outside in ((16, 32), (32, 48), (48, 64)):
            layers += [nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
        layers += [nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 16, 64), nn.ReLU(), nn.Linear(64, 1)]
        super().__init__(*layers)


def train(pictures: np.ndarray, drawn: np.ndarray, seed: int, note: str) -> UprightNet:
    """Train a net to prefer the right one of 16 versions of an X-ray, and no version of an image without a chest."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    net = UprightNet()
    optimiser = torch.optim.AdamW(net.parameters(), RATE, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS, pct_start=0.1)
    for step in range(STEPS):
        rows = [pictures[random.integers(len(pictures))] for _ in range(BATCH - 4)]
        rows += [drawn[random.integers(len(drawn))] for _ in range(4)]
        rows += [strange(random) for _ in range(STRANGE)]
        others = 2 + random.permutation(2 * len(TURNS) - 2)[: ASKED - 2]
        batch = versions(np.stack([varied(row, random) for row in rows]))[:, [0, 1, *others]]
        logits = net(batch.flatten(0, 1)).reshape(len(rows), -1)
        log = torch.log_softmax(logits, 1)
        loss = -log[:BATCH, 0].mean() - 0.5 * log[BATCH:].mean(1).mean() * STRANGE / BATCH
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 50 == 49:
            print(f"{note} step {step + 1}/{STEPS} loss {loss.item():.3f}", flush=True)
    return net.eval()


@torch.no_grad()
def scores(net: UprightNet, pictures: np.ndarray) -> np.ndarray:
    """Return probabilities, float64 (N, 16), as :func:`cxr.imaging.organs.upright.predict_versions` does."""
    found = []
    for picture in pictures:
        logits = net(versions(make_net_input(picture)[None])[0]).reshape(-1).double()
        found.append(torch.softmax(logits, 0).numpy())
    return np.stack(found)


def export(net: UprightNet, path: Path) -> None:
    """Write the net as ONNX (opset 17, float32)."""
    import onnx

    torch.onnx.export(net, torch.zeros(2 * len(TURNS), 1, SIZE, SIZE), str(path), opset_version=17,
                      input_names=["image"], output_names=["score"], dynamo=False)  # fmt: skip
    model = onnx.load(str(path))
    licence = "no restrictions (made from NIH ChestX-ray14 and drawn pictures), see UPRIGHT.md"
    model.metadata_props.add(key="licence", value=licence)
    onnx.save(model, str(path))


def main() -> None:
    """Train on all X-rays, or cross-validate over two halves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cross-validate", action="store_true", help="write upright.json instead of upright.onnx")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    names, patients, pictures = films()
    drawn = phantoms()
    learnt = np.array([name.partition("/")[0] in SETS for name in names])
    if not arguments.cross_validate:
        export(train(pictures[learnt], drawn, SEED + 2, "final"), HERE / "upright.onnx")
        return
    half = np.array([stable_hash("upright", patient) % 2 for patient in patients])
    rows = {}
    for own in (0, 1):
        net = train(pictures[learnt & (half != own)], drawn, SEED + own, f"half {own}")
        found = scores(net, pictures[half == own])
        chosen = [name for name, part in zip(names, half, strict=True) if part == own]
        rows |= {
            name: {"half": own, "scores": np.round(each, 4).tolist()} for name, each in zip(chosen, found, strict=True)
        }
    lines = (f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
    (HERE / "upright.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")  # one line per X-ray


if __name__ == "__main__":
    main()
