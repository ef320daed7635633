"""Engine ``ultralytics`` of semisyn_detectors: YOLO and RT-DETR, trained by the package ultralytics. It is under the
AGPL, so only this module and cxr.imaging.boxes.ultralytics import it, in a separate environment. Mosaics are off,
because they would mix images of different pools. A finding without boxes on an image counts as absent there."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import torch
import yaml

from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.unfinished_work import prepare_folder
from cxr.detection import proposals
from cxr.detection.proposals import ScoredBoxes
from cxr.imaging.boxes import ultralytics as boxes
from cxr.imaging.weights.yolo import convert_ultralytics
from cxr.nets import tensors
from cxr.nets.devices import inference, select_device
from cxr.nets.fitting.plain import read_state, write_state
from cxr.semisyn.detectors.engine import BOX_SELECTION, Losses, TrainingTask
from cxr.semisyn.detectors.pools import draw_image, shares_at
from cxr.semisyn.shared import yolo_line

GPU = True
FILES = ("checkpoint",)
KIND, WEIGHTS = "semisyn_ultralytics", "detector.safetensors"
NETWORKS = {"yolo": "DetectionModel", "rtdetr": "RTDETRDetectionModel"}
"""{prefix of a model configuration's name: class of its network in the package}."""
FIXED_SETTINGS = {"deterministic": True, "amp": False, "mosaic": 0.0, "close_mosaic": 0, "plots": False, "val": False}
"""Settings of the package that are the same in every training."""


class UltralyticsEngine:
    """The engine ``ultralytics``, with the settings ``semisyn.detectors.ultralytics``."""

    def __init__(self, setup: Setup):
        self.settings, self.batch = setup.engine_settings, setup.engine_settings["batch"]
        self.start = setup.files.get("checkpoint", "")
        self.device = select_device(setup.device, setup.requested_gpus)
        self.family = next((name for name in NETWORKS if Path(self.settings["plan"]).name.startswith(name)), "yolo")

    def train(self, task: TrainingTask, folder: Path, unfinished: Path) -> tuple[Losses, Mapping[int, float]]:
        """See :class:`cxr.semisyn.detectors.engine.DetectorEngine`."""
        for kind in ("images", "labels", "run"):
            shutil.rmtree(unfinished / kind, ignore_errors=True)
        unfinished.mkdir(parents=True, exist_ok=True)
        data = write_images(task, unfinished)
        steps = num_epochs_of(task.updates, task.epochs)
        draws = ImageSampler(task, self.batch, steps)
        losses: list[tuple[float, float]] = []
        identity = training_digest(task, self.settings, steps, unfinished / "images/train")
        prepare_folder(unfinished / "state", identity)
        trainer = self._trainer(draws, losses, unfinished)(overrides=FIXED_SETTINGS | {
            "model": self.settings["plan"], "data": str(data), "epochs": steps, "imgsz": self.settings["image_size"],
            "batch": self.batch, "nbs": self.batch, "seed": task.seed % 2**31, "workers": 0, "pretrained": False,
            "device": "cpu" if self.device.type == "cpu" else 0, "project": str(unfinished), "name": "run",
            "verbose": False, "exist_ok": True, "task": "detect",
        })  # fmt: skip
        trainer.train()
        net = trainer.ema.ema.float().cpu()
        facts = {"kind": KIND, "family": self.family, "yaml": net.yaml, "names": list(task.classes), "eps": 1e-3}
        facts |= {"size": self.settings["image_size"]}
        weights = {name: value.contiguous() for name, value in net.state_dict().items()}
        tensors.write_weights(folder / WEIGHTS, tensors.tensor_kinds(weights), weights.get, facts)
        return losses, {}

    def _trainer(self, draws: "ImageSampler", losses: list[tuple[float, float]], folder: Path) -> type:
        """Return a trainer class of the package that draws images by ``draws`` and appends to ``losses``. It saves its
        state to ``folder`` after each epoch, and an interrupted training resumes from there."""
        boxes.import_package()
        from ultralytics.data.build import InfiniteDataLoader
        from ultralytics.models.rtdetr.train import RTDETRTrainer
        from ultralytics.models.yolo.detect import DetectionTrainer

        state_path = folder / "state/state.pt"
        key = "semisyn.detectors.ultralytics"
        start = {}
        if self.start:  # weights are converted without unpickling code
            convert_ultralytics(Path(self.start), folder / "checkpoint.safetensors")
            start, _ = tensors.read_weights(folder / "checkpoint.safetensors", "ultralytics")

        class Trainer({"yolo": DetectionTrainer, "rtdetr": RTDETRTrainer}[self.family]):
            def get_dataloader(self, dataset_path, batch_size=16, rank=0, mode="train"):
                if mode != "train":
                    return super().get_dataloader(dataset_path, batch_size, rank, mode)
                dataset = self.build_dataset(dataset_path, mode, batch_size)
                if len(dataset) != len(draws.images):
                    raise UserError(f"{dataset_path}: ultralytics dropped some images: check whether the disk is full")
                return InfiniteDataLoader(dataset, batch_size, sampler=draws, collate_fn=dataset.collate_fn)

            def get_model(self, *arguments, **keywords):
                net = super().get_model(*arguments, **keywords)
                shapes = {name: value.shape for name, value in net.state_dict().items()}
                fitting = {name: value for name, value in start.items() if shapes.get(name) == value.shape}
                if start and len(fitting) < len(shapes) / 2:
                    raise UserError(f"{key}.checkpoint is of another model than {key}.plan: change one of them")
                net.load_state_dict(fitting, strict=False)
                return net

            def optimizer_step(self):
                loss_parts = {name: float(part) for name, part in self.loss_items.items()}
                losses.append((loss_parts.pop("cls_loss"), sum(loss_parts.values())))
                super().optimizer_step()

            def _setup_train(self):
                super()._setup_train()
                if state := read_state(state_path):
                    self.model.load_state_dict(state["net"])
                    self.ema.ema.load_state_dict(state["mean"])
                    self.ema.updates = state["updates"]
                    self.optimizer.load_state_dict(state["optimiser"])
                    self.start_epoch, self.scheduler.last_epoch = state["step"], state["step"] - 1
                    losses[:] = map(tuple, state["losses"])
                self.add_callback("on_train_epoch_start", lambda _: self._keep(state))

            def _keep(self, state):
                if state and self.epoch == state["step"]:  # no random number may be drawn before the batches
                    draws.done = self.epoch * draws.each
                    set_random_states(state["random"])
                elif self.epoch:
                    modules = {"net": self.model, "mean": self.ema.ema, "optimiser": self.optimizer}
                    run_state = {name: module.state_dict() for name, module in modules.items()}
                    run_state |= {"updates": self.ema.updates, "step": self.epoch, "losses": losses}
                    write_state(state_path, run_state | {"random": get_random_states()})

            # no validation here: the last weights are used, and semisyn_detection scores them
            def get_validator(self):
                return SimpleNamespace(metrics=SimpleNamespace(keys=[]))

            def validate(self):
                return {}, None

            def save_model(self):
                return False

            def final_eval(self):
                pass

        return Trainer

    def load(self, folder: Path) -> Callable[[np.ndarray], ScoredBoxes]:
        """See :class:`cxr.semisyn.detectors.engine.DetectorEngine`."""
        path = folder / WEIGHTS
        weights, facts = tensors.read_weights(path, KIND)
        net = boxes.build_net(weights, facts, path, NETWORKS[facts["family"]]).to(self.device).eval()
        size, classes = facts["size"], np.arange(len(facts["names"]))

        @inference()
        def find_boxes(frame: np.ndarray) -> ScoredBoxes:
            picture = proposals.stack_input([proposals.resize_square(frame, size)], net.yaml["channels"], self.device)
            corners, scores = raw_boxes(net(picture)[0], facts["family"], size, len(classes))
            every = proposals.boxes_above(corners, scores, classes, BOX_SELECTION["floor"])
            selected_boxes = proposals.apply_nms(every, BOX_SELECTION["iou"], BOX_SELECTION["most"])
            return proposals.to_frame_pixels(selected_boxes, frame.shape[0] / size, 0, frame.shape[0])

        return find_boxes


def raw_boxes(raw: torch.Tensor, family: str, size: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (boxes (N, 4) in pixels of the net's input, scores (N, classes)) of one image from the net's output
    ``raw``: (1, 4 + classes, N) in pixels for YOLO, or (1, N, 4 + classes) as fractions of the image for RT-DETR."""
    rows = raw[0] if family == "rtdetr" else raw[0].T
    centre, sides, scores = rows.split((2, 2, classes), dim=1)
    scale = size if family == "rtdetr" else 1
    return torch.cat((centre - sides / 2, centre + sides / 2), dim=1) * scale, scores


def training_digest(task: TrainingTask, engine_settings: dict, steps: int, images: Path) -> str:
    """Return a digest of a training's inputs. ``steps``: number of epochs; ``images``: folder of the image files."""
    digest = hashlib.blake2b(digest_size=16)
    facts = [task.shares, task.classes, task.updates, task.seed, engine_settings, steps]
    digest.update(json.dumps(facts, sort_keys=True, default=str).encode())
    for name in task.shares:
        for sample in task.pools[name]:
            digest.update(f"{name} {sample.image_id} {sample.boxes}".encode())
    for path in sorted(images.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def get_random_states() -> list:
    """Return the states of Python's, numpy's and torch's random generators, which ultralytics uses."""
    _, keys, place, gauss, value = np.random.get_state()  # noqa: NPY002
    return [random.getstate(), [keys.tolist(), place, gauss, value], torch.get_rng_state()]


def set_random_states(states: list) -> None:
    """Set the random generators to states that :func:`get_random_states` returned."""
    (version, numbers, gauss), (keys, *numpy_fields), torch_state = states
    random.setstate((version, tuple(numbers), gauss))
    np.random.set_state(("MT19937", np.array(keys, np.uint32), *numpy_fields))  # noqa: NPY002
    torch.set_rng_state(torch_state)


def num_epochs_of(updates: int, epochs: int) -> int:
    """Return the number of epochs for the package: the largest one up to ``epochs`` that divides ``updates``."""
    return max(number for number in range(1, min(updates, epochs) + 1) if updates % number == 0)


class ImageSampler(torch.utils.data.Sampler):
    """Sampler that yields the image indices of one epoch, drawn by :func:`cxr.semisyn.detectors.pools.draw_image`."""

    def __init__(self, task: TrainingTask, batch: int, steps: int):
        self.task, self.batch, self.each, self.done = task, batch, task.updates // steps, 0
        self.images = [(name, sample) for name in task.shares for sample in task.pools[name]]
        sizes = [len(task.pools[name]) for name in task.shares]
        self.first = dict(zip(task.shares, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))

    def __len__(self) -> int:
        return self.each * self.batch

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.each):
            batch_shares = shares_at(self.task.shares, min(self.done / max(self.task.updates - 1, 1), 1.0))
            for place in range(self.batch):
                name, number, _ = draw_image(self.task.pools, batch_shares, self.task.seed, self.done, place)
                yield self.first[name] + number
            self.done += 1


def write_images(task: TrainingTask, folder: Path) -> Path:
    """Write a task's images and labels in YOLO's layout, in the order of ImageSampler. Return the path of data.yaml."""
    for kind in ("images", "labels"):
        (folder / kind / "train").mkdir(parents=True)
    for number, sample in enumerate(sample for name in task.shares for sample in task.pools[name]):
        frame = sample.read_frame()
        if not cv2.imwrite(str(folder / f"images/train/{number:07d}.png"), frame):
            raise UserError(f"{folder}: an image could not be written: check whether the disk is full")
        lines = "".join(yolo_line(box, kind, frame.shape) for kind, *box in sample.boxes)
        (folder / f"labels/train/{number:07d}.txt").write_text(lines, encoding="utf-8")
    (folder / "val.txt").write_text(f"{(folder / 'images/train/0000000.png').absolute()}\n", encoding="utf-8")
    description = {"path": str(folder.absolute()), "train": "images/train", "val": "val.txt"}
    path = (folder / "data.yaml").absolute()
    path.write_text(yaml.safe_dump(description | {"names": dict(enumerate(task.classes))}), encoding="utf-8")
    return path


def load(setup: Setup) -> UltralyticsEngine:
    """Load the engine. Raise UserError if the package is not installed."""
    try:
        boxes.import_package()
    except ImportError:
        raise UserError(
            "semisyn.detectors.engine is 'ultralytics', whose package is not installed here: run snakemake with --sdm "
            "conda, or choose lite"
        ) from None
    return UltralyticsEngine(setup)
