"""Train the anomaly net of the engine lite and write lite.onnx beside this file, or measure it.

    python resources/anomaly/train.py --keep FOLDER        # make lite.onnx; keep the nets of the folds in FOLDER
    python resources/anomaly/train.py --evaluate FOLDER    # measure these nets; write and print scores.json
    python resources/anomaly/train.py --tell-apart FOLDER  # test whether a net tells edited from healthy lungs (torch)
    python resources/anomaly/train.py --keep FOLDER --seed 2 --output FILE   # the first command with another seed
    python resources/anomaly/train.py --keep FOLDER --control --output FILE  # as many steps without real X-rays

For each fold of patients (folds.csv), a net is trained without their X-rays and measured on these. lite.onnx is the
mean of the nets. Nets and first stages that are already in FOLDER are not trained again.

Training needs torch, onnx and onnxscript besides the pipeline's own packages, and no GPU, on one core. All commands
need the shared data (``CXR_ILS_SHARED``, default ``../shared``) and resources/organs/lite.onnx. Measuring needs the
pipeline's own environment, and torch only for ``--tell-apart``. CARD.md describes the training data and the results.
"""

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))
sys.path.insert(0, str(HERE))

import films  # noqa: E402

from cxr.base.vocabulary import LUNGS  # noqa: E402
from cxr.imaging.anomaly import lite  # noqa: E402
from cxr.imaging.anomaly.engine import compose, edit_region  # noqa: E402

SEED = 1
PAINTED_STEPS, PAINTED_RATE, PAINTED_BATCH = 450, 2e-3, 12
"""First stage: only examples with painted lesions."""
REAL_STEPS, REAL_RATE, REAL_BATCH = 400, 1e-3, (6, 2, 5)
"""Second stage. A batch has examples with painted lesions, unchanged healthy X-rays, and X-rays with marked lesions."""
REAL_WEIGHT = 1.5
PHANTOMS, PHANTOM_SHARE, PHANTOM_SEED = 240, 0.35, 1000
VISIBLE = 0.05  # fraction of the image's range from which an added brightness counts as a lesion
FULL, POWER, GAIN = 0.6, 1.5, 5.0
SETS = ("boxed", "masked", "healthy")


def lungs_of(organs: dict[str, np.ndarray]) -> np.ndarray:
    """Return right and left lung, bool (2, H, W)."""
    return np.stack([organs[label] for label in LUNGS])


def pools(fold: int | None) -> tuple[list, list, list]:
    """Return the chests for training without the patients of ``fold``: healthy, with marked lesions, synthetic."""
    from examples import stored

    healthy = [film for film in films.called_healthy() if film.fold != fold]
    marked = [film for film in films.boxed() + films.masked() if film.fold != fold]
    synthetic = []
    for index in range(PHANTOMS):
        chest = films.phantom(PHANTOM_SEED + index, 256)
        synthetic.append(stored(np.rint(chest.image * 255).astype(np.uint8), lungs_of(chest.masks)))
    return (
        [stored(film.image, lungs_of(film.organs)) for film in healthy],
        [stored(film.image, lungs_of(film.organs), film.lesion) for film in marked if lungs_of(film.organs).any()],
        synthetic,
    )


def painted_loss(logit, amplitude, excess, weight):
    """Return the loss of examples with painted lesions, from the place and the brightness of the lesions."""
    import torch
    from torch.nn import functional

    def distance(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return functional.smooth_l1_loss(found, wanted, reduction="none", beta=VISIBLE)

    lesion = (excess / VISIBLE).clamp(0, 1)
    loss = functional.binary_cross_entropy_with_logits(logit, lesion, reduction="none")
    loss = loss + 4 * distance(torch.sigmoid(logit) * amplitude, excess) + 4 * lesion * distance(amplitude, excess)
    return (loss * weight).sum() / weight.sum()


def real_loss(logit, lesion, weight, share: float):
    """Return the loss of real X-rays, from the place of the lesions, multiplied by ``share``."""
    from torch.nn import functional

    loss = functional.binary_cross_entropy_with_logits(logit, lesion, reduction="none")
    return share * (loss * weight).sum() / weight.sum()


def stage(net, chests: tuple[list, list, list], random: np.random.Generator, steps: int, rate: float, batch: tuple):
    """Train for ``steps`` steps; return a running mean of the weights.

    ``batch``: numbers of examples with painted lesions, healthy X-rays and X-rays with marked lesions in a batch.
    """
    import torch
    from examples import example, real

    healthy, marked, synthetic = chests
    pairs, clean, sick = batch
    optimiser = torch.optim.AdamW(net.parameters(), rate, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, pct_start=0.1)
    mean = {name: value.detach().clone() for name, value in net.state_dict().items()}

    def drawn(pool: list):
        return real(pool[int(random.integers(len(pool)))], random)

    for step in range(steps):
        seen = [example(synthetic if random.random() < PHANTOM_SHARE else healthy, random) for _ in range(pairs)]
        seen += [drawn(healthy) for _ in range(clean)] + [drawn(marked) for _ in range(sick)]
        image, lungs, target, weight = (torch.from_numpy(np.stack(part)) for part in zip(*seen, strict=True))
        target, weight = target[:, None], weight[:, None]
        with torch.autocast("cpu", torch.bfloat16):
            logit, amplitude = net(image[:, None], lungs)
        loss = painted_loss(logit[:pairs], amplitude[:pairs], target[:pairs], weight[:pairs]) * (pairs / len(seen))
        if clean + sick:
            share = (clean + sick) / len(seen) * REAL_WEIGHT
            loss = loss + real_loss(logit[pairs:], target[pairs:], weight[pairs:], share)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        decay = min(0.99, (step + 1) / (step + 10))
        for name, value in net.state_dict().items():
            mean[name] = mean[name] * decay + value * (1 - decay) if value.is_floating_point() else value.clone()
        if step % 50 == 49:
            print(f"step {step + 1}/{steps} loss {loss.item():.3f}", flush=True)
    return mean


def fit(fold: int | None, first: Path, seed: int = SEED, *, control: bool = False):
    """Train on all patients except those of ``fold``; return the net with averaged weights.

    ``first``: file of the weights after the first stage, which is read, or written if missing. ``control``: the second
    stage has only examples with painted lesions, like the first.
    """
    import torch
    from net import AnomalyNet

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    chests = pools(fold)
    print(f"{len(chests[0])} healthy films, {len(chests[1])} with lesions, {len(chests[2])} synthetic", flush=True)
    painted = (PAINTED_BATCH, 0, 0)

    def trained(weights: dict | None, steps: int, rate: float, batch: tuple[int, int, int]) -> dict:
        torch.manual_seed(seed)
        net = AnomalyNet().to(memory_format=torch.channels_last)
        net.load_state_dict(weights or net.state_dict())
        return stage(net, chests, np.random.default_rng(seed), steps, rate, batch)

    if not first.exists():
        saved(trained(None, PAINTED_STEPS, PAINTED_RATE, painted), first)
    weights = trained(torch.load(first), REAL_STEPS, REAL_RATE, painted if control else REAL_BATCH)
    averaged = AnomalyNet()
    averaged.load_state_dict(weights)
    return averaged.eval()


def saved(weights: dict, path: Path) -> None:
    """Write weights to a temporary file, then rename the file."""
    import torch

    torch.save(weights, path.with_suffix(".part"))
    path.with_suffix(".part").rename(path)


def export(nets: list, path: Path) -> None:
    """Write the mean of the nets as ONNX (opset 17, float32)."""
    import onnx
    import torch
    from net import Excess

    torch.onnx.export(
        Excess(nets, FULL, POWER, GAIN).eval(),
        (torch.zeros(1, 1, lite.SIDE, lite.SIDE), torch.zeros(1, 2, lite.SIDE, lite.SIDE)),
        str(path),
        opset_version=17,
        input_names=["image", "lungs"],
        output_names=["suspicion", "excess"],
        dynamo=False,
    )
    model = onnx.load(str(path))
    notes = {"full": FULL, "power": POWER, "gain": GAIN, "licence": "see CARD.md"}
    for key, value in notes.items():
        model.metadata_props.add(key=key, value=str(value))
    onnx.save(model, str(path))


def fold_path(folder: Path, fold: int) -> Path:
    """Return the path of a fold's net in the form that the engine runs."""
    return folder / f"fold{fold}.onnx"


def kept(folder: Path, fold: int, seed: int = SEED, *, control: bool = False):
    """Return the net of a fold, and write it as ONNX. It is trained if its weights are not in ``folder``."""
    import torch
    from net import AnomalyNet

    weights = folder / f"fold{fold}.pt"
    if not weights.exists():
        saved(fit(fold, folder / f"fold{fold}.first.pt", seed, control=control).state_dict(), weights)
    net = AnomalyNet()
    net.load_state_dict(torch.load(weights))
    export([net], fold_path(folder, fold))
    return net


def score(folder: Path) -> dict:
    """Return all scores of the card. Each X-ray is edited by the net that was not trained with its patient."""
    import evaluate

    sets = {name: getattr(films, name)() for name in SETS}
    editors = [lite.LiteEditor(fold_path(folder, fold)) for fold in range(films.FOLDS)]
    every = [film for part in sets.values() for film in part]
    edits, speed = evaluate.edits_of(every, lambda film: editors[film.fold].edit(film.image, film.organs))
    print(f"{speed:.1f} films a second of one core's time")
    return evaluate.table(sets, edits)


def told_apart(folder: Path) -> dict[str, list[float]]:
    """Return {"before", "after": AUROCs of two seeds} with which a net tells the lungs of NIH X-rays with lesions,
    before or after the edit, from healthy lungs."""
    import discriminator

    editors = [lite.LiteEditor(fold_path(folder, fold)) for fold in range(films.FOLDS)]
    sick = films.boxed() + [film for film in films.labelled() if film.patient.startswith("nih:")]
    healthy = films.healthy()

    def edited(film: films.Film) -> np.ndarray:
        return compose(film.image, editors[film.fold].edit(film.image, film.organs), edit_region(film.organs))[0]

    shown = {"before": lambda film: film.image, "after": edited}
    return {name: [discriminator.auroc(sick, healthy, one, seed) for seed in (0, 1)] for name, one in shown.items()}


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="folder in which the nets of the folds are kept")
    parser.add_argument("--evaluate", type=Path, metavar="FOLDER", help="measure these nets and write scores.json")
    parser.add_argument("--tell-apart", type=Path, metavar="FOLDER", help="tell edited lungs from healthy lungs")
    parser.add_argument("--output", type=Path, default=HERE / "lite.onnx", help="file to write the net to")
    parser.add_argument("--scores", type=Path, default=HERE / "scores.json", help="file to write the scores to")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of both stages")
    parser.add_argument("--control", action="store_true", help="second stage without real X-rays, as many steps")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    if arguments.evaluate:
        result = json.dumps(score(arguments.evaluate), indent=1)
        arguments.scores.write_text(result + "\n", encoding="utf-8")
        print(result)
        return
    if arguments.tell_apart:
        print(json.dumps(told_apart(arguments.tell_apart)))
        return
    with TemporaryDirectory() as folder:
        keep = arguments.keep or Path(folder)
        keep.mkdir(parents=True, exist_ok=True)
        nets = [kept(keep, fold, arguments.seed, control=arguments.control) for fold in range(films.FOLDS)]
        export(nets, arguments.output)


if __name__ == "__main__":
    main()
