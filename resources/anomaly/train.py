"""Train the lite anomaly net and write lite.onnx beside this file, or score it.

    python resources/anomaly/train.py              # remake lite.onnx
    python resources/anomaly/train.py --evaluate   # remake scores.json and print it

Training needs torch, onnx and onnxscript beside the pipeline's own packages, no GPU, one core; both need the shared
data (``CXR_ILS_SHARED``, default ``../shared``) and resources/organs/lite.onnx. What is learnt from, and how well it
works, is in CARD.md.
"""

import argparse
import json
import sys
from pathlib import Path

import cv2
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))
sys.path.insert(0, str(HERE))

import evaluate  # noqa: E402
import films  # noqa: E402

from cxr.base.vocabulary import LUNGS  # noqa: E402
from cxr.geometry.affine import to_original  # noqa: E402
from cxr.imaging.anomaly import lite  # noqa: E402
from cxr.imaging.anomaly.compose import compose, edit_region  # noqa: E402

SEED = 1
STEPS, BATCH, RATE = 800, 12, 2e-3
PHANTOMS, PHANTOM_SHARE, PHANTOM_SEED = 240, 0.35, 1000
VISIBLE = 0.05  # share of the picture's range from which an excess counts as a lesion
FLOOR, FULL, GAIN = 0.10, 0.70, 2.6
TEST_SEED, TEST_PHANTOMS = 500_000, 36
LESIONS = ("opacity", "consolidation", "pneumonia", "atelectasis", "edema", "effusion")


def pools() -> tuple[list, list]:
    """Return the healthy chests to learn from: real films, synthetic ones."""
    from examples import stored

    def lungs(organs: dict[str, np.ndarray]) -> np.ndarray:
        return np.stack([organs[label] for label in LUNGS])

    real = [stored(film.image, lungs(film.organs)) for film in films.healthy()]
    synthetic = []
    for index in range(PHANTOMS):
        chest = films.phantom(PHANTOM_SEED + index, 256)
        synthetic.append(stored(np.rint(chest.image * 255).astype(np.uint8), lungs(chest.masks)))
    return real, synthetic


def fit(steps: int):
    """Train on painted lesions; return the net with averaged weights."""
    import torch
    from examples import example
    from net import AnomalyNet
    from torch.nn import functional

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    random = np.random.default_rng(SEED)
    real, synthetic = pools()
    print(f"{len(real)} healthy films, {len(synthetic)} synthetic chests", flush=True)
    net = AnomalyNet().to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(net.parameters(), RATE, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps, pct_start=0.1)
    mean = {name: value.detach().clone() for name, value in net.state_dict().items()}

    def distance(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return functional.smooth_l1_loss(found, wanted, reduction="none", beta=VISIBLE)

    running = 0.0
    for step in range(steps):
        pairs = [example(synthetic if random.random() < PHANTOM_SHARE else real, random) for _ in range(BATCH)]
        image, lungs, excess, weight = (torch.from_numpy(np.stack(part)) for part in zip(*pairs, strict=True))
        excess, weight = excess[:, None], weight[:, None]
        with torch.autocast("cpu", torch.bfloat16):
            logit, amplitude = net(image[:, None], lungs)
        lesion = (excess / VISIBLE).clamp(0, 1)
        loss = functional.binary_cross_entropy_with_logits(logit, lesion, reduction="none")
        loss = loss + 4 * distance(torch.sigmoid(logit) * amplitude, excess) + 4 * lesion * distance(amplitude, excess)
        loss = (loss * weight).sum() / weight.sum()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        decay = min(0.99, (step + 1) / (step + 10))
        for name, value in net.state_dict().items():
            mean[name] = mean[name] * decay + value * (1 - decay) if value.is_floating_point() else value.clone()
        running = 0.98 * running + 0.02 * loss.item()
        if step % 50 == 49:
            print(f"step {step + 1}/{steps} loss {running / (1 - 0.98 ** (step + 1)):.3f}", flush=True)
    averaged = AnomalyNet()
    averaged.load_state_dict(mean)
    return averaged.eval()


def export(net, path: Path) -> None:
    """Write the net as ONNX (opset 17, float32)."""
    import onnx
    import torch
    from net import Excess

    torch.onnx.export(
        Excess(net, FLOOR, FULL, GAIN).eval(),
        (torch.zeros(1, 1, lite.SIDE, lite.SIDE), torch.zeros(1, 2, lite.SIDE, lite.SIDE)),
        str(path),
        opset_version=17,
        input_names=["image", "lungs"],
        output_names=["excess"],
        dynamo=False,
    )
    model = onnx.load(str(path))
    notes = {"floor": FLOOR, "full": FULL, "gain": GAIN, "licence": "see CARD.md"}
    for key, value in notes.items():
        model.metadata_props.add(key=key, value=str(value))
    onnx.save(model, str(path))


def anomaly_map(editor: lite.LiteEditor):
    """Return the engine's anomaly map as a function of a film, kept per film."""
    kept: dict[int, np.ndarray] = {}

    def of(film: films.Film) -> np.ndarray:
        if id(film) not in kept:
            kept[id(film)] = compose(film.image, editor.edit(film.image, film.organs), edit_region(film.organs))[1]
        return kept[id(film)]

    return of


def template_map(healthy: list[films.Film]):
    """Return the simplest model of the normal chest: brighter than the mean healthy film, in lung coordinates."""

    def seen(film: films.Film) -> tuple[lite.View, np.ndarray]:
        lungs = np.stack([film.organs[label] for label in LUNGS])
        affine = lite.window(lungs.any(axis=0))
        return lite.view(*lite.cut(film.image, lungs, affine)), affine

    mean = np.mean([seen(film)[0].image for film in healthy], axis=0)

    def of(film: films.Film) -> np.ndarray:
        found, affine = seen(film)
        excess = np.clip(found.image - mean, 0, 1).astype(np.float32) * 255
        return np.rint(to_original(excess, affine, film.image.shape, nearest=False)).astype(np.uint8)

    return of


def score() -> dict:
    """Return every score of the card."""
    healthy = films.healthy()
    phantoms = [films.painted(TEST_SEED + 7 * i, LESIONS[i % len(LESIONS)]) for i in range(TEST_PHANTOMS)]
    plain = [films.painted(TEST_SEED + 7 * i, "opacity") for i in range(TEST_PHANTOMS)]
    for film, index in zip(plain, range(TEST_PHANTOMS), strict=True):
        film.image = np.rint(films.phantom(TEST_SEED + 7 * index).image * 255).astype(np.uint8)
        film.lesion = np.zeros_like(film.lesion)
    sets = {"nih_boxes": films.boxed(), "covid_masks": films.masked(), "painted_phantoms": phantoms}
    without = {"healthy_nih": healthy, "healthy_phantoms": plain}
    return evaluate.table(sets, without, anomaly_map(lite.load(None)), template_map(healthy))


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluate", action="store_true", help="write scores.json, do not train")
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps")
    parser.add_argument("--output", type=Path, default=HERE / "lite.onnx", help="file to write the net to")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    if not arguments.evaluate:
        export(fit(arguments.steps), arguments.output)
        return
    result = json.dumps(score(), indent=1)
    (HERE / "scores.json").write_text(result + "\n", encoding="utf-8")
    print(result)


if __name__ == "__main__":
    main()
