"""The training stage: fine-tune a model on pairs, masks and frames, and log its losses and scores."""

import hashlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import torch

from cxr.base.atomic import atomic_folder
from cxr.base.columns import schema
from cxr.base.engines import Setup, engine_module
from cxr.base.seeds import stable_hash
from cxr.base.tables import write_table
from cxr.base.unfinished_work import describe_files, prepare_folder
from cxr.ils.rosalia.config import read_config
from cxr.ils.rosalia.model import Rosalia, sam_batch
from cxr.ils.rosalia.samples import PairOptions, Pairs
from cxr.ils.rosalia.sources import PairLines, RandomWording, open_image_source
from cxr.ils.rosalia.tokens import Tokens, write_prompt
from cxr.ils.training import trained_parts
from cxr.ils.training.columns import EPOCHS, UPDATES
from cxr.ils.training.fit import Fit, Progress
from cxr.ils.training.settings import Recipe, TrainingOptions
from cxr.nets.devices import count_gpus, select_device
from cxr.nets.fitting.engine import make_runner
from cxr.nets.fitting.launch import catch_warning_signals, launch, run_process
from cxr.segmentation.encoder_cache import DiskCache, open_disk_caches

log = logging.getLogger("cxr")
WORKER = "cxr.ils.training.train"
"""Module that each process of a training over several runs, with a job's file."""


@dataclass(frozen=True)
class Job:
    """A training described in builtins, so that it can be passed to other processes."""

    files: dict
    engine_files: dict
    options: dict
    attrs: dict
    threads: int
    compute: dict
    folder: str  # Folder of checkpoints

    def identity(self) -> str:
        """Return a digest of everything the result depends on, so that only the same run is resumed."""
        digest = hashlib.sha256(json.dumps([self.options, self.attrs["code_digest"]], sort_keys=True).encode())
        for name in ("train", "validate", "index", "pictures", "wordings"):
            digest.update(Path(self.files[name]).read_bytes() if self.files[name] else b"")
        # these files are large: their sizes reveal all but very unlikely changes
        for path in (*self.files["masks"], *self.files["frames"], *sorted(self.engine_files.values())):
            digest.update(f"{Path(path).name}\n".encode() + describe_files(path))
        return digest.hexdigest()


def run_training(
    *,
    train: str,
    validate: str,
    index: str,
    masks: list[str],
    frames: list[str] | None = None,
    pictures: str | None = None,
    wordings: str | None = None,
    model: str,
    updates: str,
    epochs: str,
    tensorboard: str,
    options: TrainingOptions,
    attrs: dict,
    threads: int,
    compute: dict,
    **engine_files: str,
) -> None:
    """Train a model on the pairs of ``train``, score it on those of ``validate``, and write the best weights.

    Images are in the shards ``frames``, or in the files of the table ``pictures`` (image_id, path). With ``wordings``
    (of the paraphrase stage) each training pair uses its plain text or a random paraphrase; validation uses the plain
    text.

    Writes the folder ``model`` (:meth:`Rosalia.save_pretrained`, adapters merged, and its tokenizer), the tables
    ``updates`` and ``epochs`` (TSV) and the folder ``tensorboard``. An interrupted run resumes at its last checkpoint,
    with the same tables as an uninterrupted one. Raises UserError for invalid settings or inputs.
    """
    files = {"train": train, "validate": validate, "index": index, "masks": list(masks)}
    files |= {"frames": list(frames or []), "pictures": pictures or "", "wordings": wordings or ""}
    files |= {"model": model, "updates": updates, "epochs": epochs, "tensorboard": tensorboard}
    folder = Path(model).with_name("checkpoint")
    job = Job(files, engine_files, options.as_dict(), attrs, threads, compute, str(folder))
    restart_message = f"{folder} holds a checkpoint of other settings, pairs or code: the training starts again"
    prepare_folder(folder, job.identity(), pattern="checkpoint.*", warning=restart_message)
    _make_start_model(job, options)
    if options.recipe.runner == "deepspeed":
        _launch_processes(job)
    else:
        train_in_process(job)
    shutil.rmtree(folder)


def _count_processes(job: Job) -> int:
    """Return the number of processes: one per GPU, or one on the CPU."""
    return max(1, count_gpus(job.compute["device"], job.compute.get("asked", job.compute["gpus"])))


def _launch_processes(job: Job) -> None:
    """Run :func:`train_in_process` in separate processes, and copy their messages into the log."""
    processes = _count_processes(job)
    recipe = TrainingOptions.from_dict(job.options).recipe
    shared = recipe.shared(processes)
    shared.micro_batches_per_step(processes)  # raises before any process is started
    if shared.micro_batch != recipe.micro_batch:
        log.info("micro-batches of %d pairs: %d GPUs share a batch of %d", shared.micro_batch, processes, recipe.batch)
    path = Path(job.folder, "job.json")
    path.write_text(json.dumps(asdict(job)), encoding="utf-8")
    launch(WORKER, path, processes, job.compute["time_to_stop"], sys.executable)


def train_in_process(job: Job) -> None:
    """Run a training, or one process of it. If asked to stop, it writes a checkpoint and ends."""
    with catch_warning_signals() as stop_requested:
        _train(job, stop_requested)


def _train(job: Job, stop_requested: Callable[[], bool]) -> None:
    options = TrainingOptions.from_dict(job.options)
    recipe = options.recipe.shared(int(os.environ.get("WORLD_SIZE", 1)))
    folder = Path(job.folder)
    device = select_device(job.compute["device"], job.compute.get("asked"))
    tokens = Tokens.load(folder / "start")
    # before the model is loaded, because this is quick and finds most mistakes
    pair_options = PairOptions.for_model(read_config(folder / "start"), options, answers=True, equalise=False)
    shared = {name: job.files[name] for name in ("index", "masks")} | {"tokens": tokens}
    shared["pictures"] = open_image_source(job.files["frames"], job.files["pictures"])
    pairs = Pairs(lines=job.files["train"], options=pair_options, wording=_read_wording(job), **shared)
    validation_pairs = Pairs(
        lines=job.files["validate"], options=replace(pair_options, answers=False, equalise=True), **shared
    )
    low = recipe.dtype == "bfloat16" and recipe.runner == "deepspeed"
    # each process loads the model onto its own GPU: eight copies would not fit into main memory
    process_device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if device.type == "cuda" else device
    model = Rosalia.from_pretrained(folder / "start", torch.bfloat16 if low else torch.float32, process_device)
    model.images_at_once = sam_batch(job.compute)
    if recipe.gradient_checkpointing:
        model.checkpoint_gradients()
    torch.manual_seed(stable_hash(options.seed, "adapters") % 2**63)
    adapters = trained_parts.add_adapters(model, recipe.lora)
    trained = trained_parts.select_trained(model, recipe.trained)
    if job.compute.get("keep_features"):
        model.feature_caches = _open_feature_caches(job, model, recipe, pairs, validation_pairs)
    patience = timedelta(seconds=job.compute["time_to_answer"])
    optimiser = trained_parts.make_optimiser(trained, recipe)
    runner = make_runner(recipe.runner, model, trained, optimiser, recipe, device, patience)
    fit = Fit(
        runner, pairs, validation_pairs, recipe, options, folder,
        workers=max(0, job.threads // runner.ranks - 1),  # all processes share the job's cores
        checkpoint_every=job.compute["checkpoint_every"], stop_requested=stop_requested,
    )  # fmt: skip
    course = fit.run(job.files["tensorboard"])
    if runner.rank == 0:
        _write_outputs(job, course, model, adapters, tokens, runner.parameters)
    runner.wait()  # a rank that ends early would close the others' connections


def _open_feature_caches(
    job: Job, model: Rosalia, recipe: Recipe, pairs: Pairs, validation_pairs: Pairs
) -> dict[str, DiskCache]:
    """Return the caches of frozen encoders' outputs for the images of both splits; {} if both are trained."""
    shapes, key = model.frozen_encoder_shapes(), "compute.keep_features"
    if not shapes or (recipe.runner == "plain" and recipe.dtype != "float32"):
        reason = (
            "mixed precision does not encode an image the same way twice" if shapes else "both encoders are trained"
        )
        log.info("%s: nothing is kept, because %s", key, reason)
        return {}
    views = {(name, equalised) for name in pairs.lines.images for equalised in (False, True)}
    views |= {(name, validation_pairs.options.equalise) for name in validation_pairs.lines.images}
    return open_disk_caches(Path(job.folder, "features"), sorted(views), shapes, next(model.parameters()).dtype, key)


def _read_wording(job: Job) -> RandomWording | None:
    return RandomWording(job.files["wordings"]) if job.files["wordings"] else None


def _make_start_model(job: Job, options: TrainingOptions) -> None:
    """Make the model that the training starts from, unless an interrupted run already did."""
    folder = Path(job.folder, "start")
    if folder.is_dir():
        return
    lines = PairLines(job.files["train"])
    wording = _read_wording(job)
    texts = (
        write_prompt(text, line["answer"], options.conversation)
        for line in lines
        for text in (wording.texts(line["instruction"]) if wording else [line["instruction"]])
    )
    making = folder.with_name("start.part")
    shutil.rmtree(making, ignore_errors=True)
    engine = engine_module("cxr.ils.training", options.engine)
    engine.load(options, Setup.of_job(job.engine_files, job.compute))(making, texts)
    making.rename(folder)


def _write_outputs(job: Job, course: Progress, model: Rosalia, adapters, tokens: Tokens, trained: dict) -> None:
    best = torch.load(Path(job.folder, "best.pt"), map_location="cpu", weights_only=True)
    with torch.no_grad():
        for name, value in trained.items():
            value.copy_(best[name])
    trained_parts.merge_adapters(model, adapters)
    with atomic_folder(job.files["model"]) as making:
        model.save_pretrained(making)  # one tensor at a time
        tokens.save(making)
    write_table(job.files["updates"], pl.DataFrame(course.updates, schema=schema(UPDATES)), UPDATES)
    write_table(job.files["epochs"], pl.DataFrame(course.epochs, schema=schema(EPOCHS)), EPOCHS)


if __name__ == "__main__":
    run_process(Path(sys.argv[1]), lambda text: train_in_process(Job(**json.loads(text))))
