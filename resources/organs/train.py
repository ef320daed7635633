"""Train the organ net of the engine lite and write lite.onnx beside this file.

    python resources/organs/train.py                   # make lite.onnx
    python resources/organs/train.py --cross-validate  # make cross_validation.json and print its table
    python resources/organs/train.py --weights --cross-validate  # both, with a common first third of the work

This needs torch, onnx and onnxscript besides the pipeline's own packages, no GPU, and the shared data
(``CXR_ILS_SHARED``, default ``../shared``). It uses one core and a fixed seed. CARD.md describes data and scores.
"""

import argparse
import json
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import nn
from torch.nn import functional

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))
sys.path.insert(0, str(HERE))

import data  # noqa: E402
from augment import augment, spoil  # noqa: E402

from cxr.metrics import masks  # noqa: E402
from cxr.nets.map_net import clean_mask, prepare_frame  # noqa: E402

SEED = 2
SIZE = 128  # pixels of the net's input and output
BATCH = 8
FOLDS = 4
PRETRAIN_STEPS, TEACHER_STEPS, STUDENT_STEPS = 300, 150, 250
RATE = 2e-3
LOCAL_WINDOW = 33  # pixels of the window of the local contrast channel
PERCENTILES = (0.5, 99.5)


class Block(nn.Sequential):
    """Two 3 x 3 convolutions with batch normalisation and ReLU."""

    def __init__(self, inside: int, outside: int):
        layers = []
        for channels in (inside, outside):
            layers += [nn.Conv2d(channels, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
        super().__init__(*layers)


def local_mean(image: torch.Tensor) -> torch.Tensor:
    """Return the mean over a square window. Two passes would be faster, but round differently and give another net."""
    return functional.avg_pool2d(image, LOCAL_WINDOW, 1)


class OrganNet(nn.Module):
    """A U-Net at half resolution: images (N, 1, S, S) in 0..1 to logits (N, K, S, S).

    The second input channel is the contrast to the neighbourhood. It makes the net robust to exposure and tone curve.
    """

    def __init__(self, outputs: int = len(data.LABELS), widths: tuple[int, ...] = (32, 64, 96, 128)):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 24, 5, stride=2, padding=2, bias=False), nn.BatchNorm2d(24), nn.ReLU())
        self.down = nn.ModuleList(Block(a, b) for a, b in zip((24, *widths[:-1]), widths, strict=True))
        self.up = nn.ModuleList(Block(a + b, a) for a, b in pairwise(widths))
        self.head = nn.Conv2d(widths[0], outputs, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        pad = LOCAL_WINDOW // 2
        padded = functional.pad(image, (pad, pad, pad, pad), mode="replicate")
        mean = local_mean(padded)
        square = local_mean(padded * padded)
        local = (image - mean) / torch.sqrt(torch.clamp(square - mean * mean, min=0.0) + 1e-3)
        x = self.stem(torch.cat([image * 2 - 1, local * 0.5], 1))
        skips = []
        for level, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if level else x)
            skips.append(x)
        for level in reversed(range(len(self.up))):
            x = self.up[level](torch.cat([skips[level], functional.interpolate(x, scale_factor=2.0)], 1))
        return functional.interpolate(self.head(x), scale_factor=2.0, mode="bilinear", align_corners=False)


def loss_of(logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return cross entropy plus soft Dice loss. Both are weighted per pixel; the weight 0 means not labelled."""
    entropy = functional.binary_cross_entropy_with_logits(logits, target, weight, reduction="sum") / weight.sum()
    probability = torch.sigmoid(logits)
    both = (weight * probability * target).sum((2, 3))
    total = (weight * (probability + target)).sum((2, 3))
    labelled = weight.amax((2, 3))
    dice = 1 - (2 * both + 1) / (total + 1)
    return entropy + (dice * labelled).sum() / labelled.sum().clamp(min=1e-6)


def fit(net: OrganNet, pools: list[tuple[float, data.Pool]], steps: int, seed: int, rate: float, note: str) -> OrganNet:
    """Train on images from the pools, which are (proportion, pool) pairs. Return a net with averaged weights."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    net.to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(net.parameters(), rate, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, pct_start=0.1)
    mean = {name: value.detach().clone() for name, value in net.state_dict().items()}
    shares = np.array([share for share, _ in pools])
    for step in range(steps):
        net.train()
        picks = random.choice(len(pools), BATCH, p=shares / shares.sum())
        rows = [spoil(pools[pick][1].row(random.integers(len(pools[pick][1]))), random) for pick in picks]
        image, target, weight = augment(rows, SIZE, PERCENTILES)
        with torch.autocast("cpu", torch.bfloat16):
            logits = net(image)
        loss = loss_of(logits.float(), target, weight)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        decay = min(0.98, step / (step + 20))
        for name, value in net.state_dict().items():
            mean[name] = mean[name] * decay + value * (1 - decay) if value.is_floating_point() else value.clone()
        if step % 50 == 49:
            print(f"{note} step {step + 1}/{steps} loss {loss.item():.3f}", flush=True)
    averaged = OrganNet()
    averaged.load_state_dict(mean)
    return averaged.eval()


@torch.no_grad()
def probabilities(net: OrganNet, frames: np.ndarray) -> np.ndarray:
    """Return probabilities (N, K, S, S) for frames, uint8 (N, 512, 512), prepared as in the engine."""
    images = torch.from_numpy(np.stack([prepare_frame(frame, SIZE, PERCENTILES) for frame in frames]))[:, None]
    return torch.cat([torch.sigmoid(net(image[None])) for image in images]).numpy()


def scores(net: OrganNet, pool: data.Pool) -> list[dict[str, float]]:
    """Return the Dice of each image and organ at frame resolution, after the clean-up that the engine does."""
    result = []
    for frame, target in zip(pool.frames, pool.truth, strict=True):
        found = [clean_mask(p) for p in data.upsample(probabilities(net, frame[None])[0])]
        pairs = zip(data.LABELS, found, target, strict=True)
        result.append({name: masks.dice(*masks.overlap(a, b)) for name, a, b in pairs})
    return result


@cache
def pretrain() -> OrganNet:
    """Train on data that no fold holds out: synthetic X-rays and images with automatic lung masks."""
    torch.manual_seed(SEED)
    return fit(OrganNet(), [(0.6, data.phantoms()), (0.4, data.automatic())], PRETRAIN_STEPS, SEED, RATE, "pretrain")


def train(base: OrganNet, experts: data.Pool, seed: int, note: str) -> OrganNet:
    """Tune a teacher on the radiologists' masks, label the NIH images with it, and train a student on both."""

    def copy(net: OrganNet) -> OrganNet:
        twin = OrganNet()
        twin.load_state_dict(net.state_dict())
        return twin

    weak, synthetic = data.automatic(), data.phantoms()
    teacher = fit(
        copy(base), [(0.65, experts), (0.15, weak), (0.2, synthetic)], TEACHER_STEPS, seed, RATE / 2, f"{note} teacher"
    )
    unlabelled = data.self_labelled(lambda frames: probabilities(teacher, frames))
    print(f"{note}: {len(unlabelled)} NIH images labelled by the teacher", flush=True)
    return fit(
        copy(teacher),
        [(0.45, experts), (0.1, weak), (0.15, synthetic), (0.3, unlabelled)],
        STUDENT_STEPS,
        seed + 1,
        RATE / 2,
        f"{note} student",
    )


def cross_validate() -> dict:
    """Hold out a quarter of the patients at a time. Return the scores of all images with radiologists' masks."""
    base, experts, rows = pretrain(), data.experts(), []
    for fold, held_out in enumerate(data.folds(experts.patients, FOLDS)):
        net = train(base, experts.take(~held_out), SEED + 10 * fold, f"fold {fold}")
        test = experts.take(held_out)
        for name, patient, dice in zip(test.names, test.patients, scores(net, test), strict=True):
            rows.append({"fold": fold, "image": name, "patient": patient, **{k: round(v, 4) for k, v in dice.items()}})
        print(json.dumps(rows[-len(test) :], indent=1), flush=True)
    return {"seed": SEED, "folds": FOLDS, "images": rows, "mean": mean_scores(rows)}


def mean_scores(rows: list[dict]) -> dict[str, float]:
    """Return the mean Dice of each organ over the images."""
    return {name: round(float(np.mean([row[name] for row in rows])), 4) for name in data.LABELS}


def print_table(result: dict) -> None:
    """Print the mean Dice per fold and over all images."""
    print("| fold | images | " + " | ".join(data.LABELS) + " |\n|---|---|" + "---|" * len(data.LABELS))
    for fold in range(result["folds"]):
        rows = [row for row in result["images"] if row["fold"] == fold]
        means = mean_scores(rows)
        print(f"| {fold} | {len(rows)} | " + " | ".join(f"{means[name]:.3f}" for name in data.LABELS) + " |")
    cells = " | ".join(f"{result['mean'][name]:.3f}" for name in data.LABELS)
    print(f"| all | {len(result['images'])} | {cells} |")


def in_two_passes(model):
    """Split each mean over a square window in an ONNX model into a mean of rows and one of columns, which is faster."""
    from onnx import helper

    nodes = []
    for node in model.graph.node:
        if node.op_type != "AveragePool":
            nodes.append(node)
            continue
        (source,), (target,) = node.input, node.output
        rows, one = f"{target}_rows", (1, 1)
        nodes += [
            helper.make_node(
                "AveragePool", [source], [rows], f"{node.name}_rows", kernel_shape=(LOCAL_WINDOW, 1), strides=one
            ),
            helper.make_node("AveragePool", [rows], [target], node.name, kernel_shape=(1, LOCAL_WINDOW), strides=one),
        ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def export(net: OrganNet, path: Path) -> None:
    """Write the net as ONNX (opset 17, float32), with its labels and the preparation of images as metadata."""
    import onnx

    class Probabilities(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, image):
            return torch.sigmoid(self.net(image))

    torch.onnx.export(
        Probabilities().eval(),
        torch.zeros(1, 1, SIZE, SIZE),
        str(path),
        opset_version=17,
        input_names=["image"],
        output_names=["probability"],
        dynamo=False,
    )
    model = in_two_passes(onnx.load(str(path)))
    notes = {
        "labels": "|".join(data.LABELS),
        "size": str(SIZE),
        "percentiles": json.dumps(PERCENTILES),
        "licence": "non-commercial use only (made from CC BY-NC-SA pictures), see CARD.md",
    }
    for key, value in notes.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, str(path))


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cross-validate", action="store_true", help="write cross_validation.json")
    parser.add_argument("--weights", action="store_true", help="write lite.onnx (the default)")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if arguments.weights or not arguments.cross_validate:
        export(train(pretrain(), data.experts(), SEED + 100, "final"), HERE / "lite.onnx")
    if arguments.cross_validate:
        result = cross_validate()
        (HERE / "cross_validation.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print_table(result)


if __name__ == "__main__":
    main()
