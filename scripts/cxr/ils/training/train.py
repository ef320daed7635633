"""The training stage: fine-tune a model on pairs, masks and frames, and write tables of its losses and scores."""

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
from peft import LoraConfig
from peft.tuners.lora import LoraModel
from torch import nn

from cxr.base.atomic import atomic_folder
from cxr.base.engines import engine_module
from cxr.base.seeds import stable_hash
from cxr.base.tables import write_rows
from cxr.ils.rosalia.config import read_config
from cxr.ils.rosalia.model import Rosalia, sam_batch
from cxr.ils.rosalia.samples import PairOptions, Pairs
from cxr.ils.rosalia.sources import PairLines, RandomWording, open_image_source
from cxr.ils.rosalia.tokens import Tokens, write_prompt
from cxr.ils.training.columns import EPOCHS, UPDATES
from cxr.ils.training.fit import Fit, Progress
from cxr.ils.training.settings import LoraSettings, Recipe, TrainingOptions
from cxr.nets.devices import select_device
from cxr.nets.fitting.launch import TrainingJob, run_worker
from cxr.nets.fitting.loop import make_runner
from cxr.segmentation.encoder_cache import DiskCache, open_disk_caches

log = logging.getLogger("cxr")
WORKER = "cxr.ils.training.train"
"""Module that every process of a training on several GPUs runs, with the file of the job as argument."""

LANGUAGE_MODEL, HEAD = "model.language_model", "lm_head"
PARTS = {
    "language_model": f"llava.{LANGUAGE_MODEL}.",
    "lm_head": f"llava.{HEAD}.",
    "embed_tokens": f"llava.{LANGUAGE_MODEL}.embed_tokens.",
    "multi_modal_projector": "llava.model.multi_modal_projector.",
    "vision_tower": "llava.model.vision_tower.",
    "project": "project.",
    "mask_decoder": "sam.mask_decoder.",
    "prompt_encoder": "sam.prompt_encoder.",
    "vision_encoder": "sam.vision_encoder.",
}
"""{part in the setting ``training.<engine>.trained``: prefix of the names of the part's tensors}."""
ADAPTER = "lora_"
"""Text in the name of every tensor of an adapter (peft)."""


def add_adapters(model: Rosalia, options: LoraSettings) -> LoraModel | None:
    """Insert adapters into all linear layers of the language model and its head; return them, or None for rank 0."""
    if not options.rank:
        return None
    layers = [
        name
        for name, module in model.llava.named_modules()
        if isinstance(module, nn.Linear) and (name.startswith(f"{LANGUAGE_MODEL}.") or name == HEAD)
    ]
    config = LoraConfig(r=options.rank, lora_alpha=options.alpha, lora_dropout=options.dropout, target_modules=layers)
    return LoraModel(model.llava, config, "default")


def merge_adapters(model: Rosalia, adapters: LoraModel | None) -> None:
    """Add the adapters to the weights that they adapt, in place, and remove the adapters."""
    if adapters is not None:
        model.llava = adapters.merge_and_unload(safe_merge=True)


def select_trained(model: Rosalia, trained: list[str]) -> dict[str, nn.Parameter]:
    """Freeze all weights except the adapters and the parts in ``trained``; return {name: trained parameter}."""
    prefixes = tuple(PARTS[name] for name in trained)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(ADAPTER in name or name.startswith(prefixes))
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def make_optimiser(parameters: dict[str, nn.Parameter], recipe: Recipe) -> torch.optim.AdamW:
    """Return AdamW for the trained parameters. Its learning rate is 0 until the training loop sets the rate."""
    return torch.optim.AdamW(parameters.values(), lr=0.0, betas=recipe.betas, weight_decay=recipe.weight_decay)


def run_training(
    *,
    train: str,
    validate: str,
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

    Images are in the shards ``frames``, or in the files that the table ``pictures`` (image_id, path) names. If
    ``wordings`` is given, each training pair uses its instruction or a random paraphrase. The outputs are the folder
    ``model`` (adapters merged, with its tokenizer), the tables ``updates`` and ``epochs``, and the folder
    ``tensorboard``. An interrupted run resumes at its last checkpoint and writes the same tables as an uninterrupted
    run. Raises UserError for invalid settings or inputs.
    """
    inputs = {"train": train, "validate": validate, "masks": list(masks), "frames": list(frames or [])}
    inputs |= {"pictures": pictures or "", "wordings": wordings or ""} | engine_files
    outputs = {"model": model, "updates": updates, "epochs": epochs, "tensorboard": tensorboard}
    folder = Path(model).with_name("checkpoint")
    job = TrainingJob(inputs, outputs, options.as_dict(), attrs, compute, str(folder), threads)
    job.prepare_folder()
    _make_start_model(job, options)
    job.run(WORKER, options.recipe, _train)


def _train(job: TrainingJob, stop_requested: Callable[[], bool]) -> None:
    options = TrainingOptions.from_dict(job.options)
    recipe = options.recipe.shared(int(os.environ.get("WORLD_SIZE", 1)))
    folder = Path(job.folder)
    device = select_device(job.compute["device"], job.compute.get("asked"))
    tokens = Tokens.load(folder / "start")
    # the data are opened before the model, because this is quick and finds most mistakes
    pair_options = PairOptions.for_model(read_config(folder / "start"), options, answers=True, equalise=False)
    pictures = open_image_source(job.inputs["frames"], job.inputs["pictures"])
    shared = {"masks": job.inputs["masks"], "tokens": tokens, "pictures": pictures}
    pairs = Pairs(lines=job.inputs["train"], options=pair_options, wording=_read_wording(job), **shared)
    validation_pairs = Pairs(
        lines=job.inputs["validate"], options=replace(pair_options, answers=False, equalise=True), **shared
    )
    low = recipe.dtype == "bfloat16" and recipe.runner == "deepspeed"
    # each process loads the model onto its own GPU: eight copies would not fit into main memory
    process_device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if device.type == "cuda" else device
    model = Rosalia.from_pretrained(folder / "start", torch.bfloat16 if low else torch.float32, process_device)
    model.images_at_once = sam_batch(job.compute)
    if recipe.gradient_checkpointing:
        model.checkpoint_gradients()
    torch.manual_seed(stable_hash(options.seed, "adapters") % 2**63)
    adapters = add_adapters(model, recipe.lora)
    trained = select_trained(model, recipe.trained)
    if job.compute.get("keep_features"):
        model.feature_caches = _open_feature_caches(job, model, recipe, pairs, validation_pairs)
    patience = timedelta(seconds=job.compute["time_to_answer"])
    optimiser = make_optimiser(trained, recipe)
    runner = make_runner(recipe.runner, model, trained, optimiser, recipe, device, patience)
    fit = Fit(
        runner, folder, options.seed, job.compute["checkpoint_every"], stop_requested,
        pairs=pairs, validation_pairs=validation_pairs, recipe=recipe, tensorboard=job.outputs["tensorboard"],
        workers=max(0, job.threads // runner.ranks - 1),  # all processes share the job's cores
    )  # fmt: skip
    course = fit.run()
    if runner.rank == 0:
        _write_outputs(job, course, model, adapters, tokens, runner.parameters)
    runner.wait()  # a rank that ends early would close the others' connections


def _open_feature_caches(
    job: TrainingJob, model: Rosalia, recipe: Recipe, pairs: Pairs, validation_pairs: Pairs
) -> dict[str, DiskCache]:
    """Return {encoder: cache on disk of its outputs} for the frozen encoders; {} if no outputs can be cached."""
    shapes, key = model.frozen_encoder_shapes(), "compute.keep_features"
    if not shapes or (recipe.runner == "plain" and recipe.dtype != "float32"):
        reason = "mixed precision gives an image another output each time" if shapes else "both encoders are trained"
        log.info("%s: no outputs of encoders are kept, because %s", key, reason)
        return {}
    views = {(name, equalised) for name in pairs.lines.images for equalised in (False, True)}
    views |= {(name, validation_pairs.options.equalise) for name in validation_pairs.lines.images}
    return open_disk_caches(Path(job.folder, "features"), sorted(views), shapes, next(model.parameters()).dtype, key)


def _read_wording(job: TrainingJob) -> RandomWording | None:
    return RandomWording(job.inputs["wordings"]) if job.inputs["wordings"] else None


def _make_start_model(job: TrainingJob, options: TrainingOptions) -> None:
    """Write the model from which the training starts, unless an interrupted run has already written it."""
    folder = Path(job.folder, "start")
    if folder.is_dir():
        return
    wording = _read_wording(job)
    texts = (
        write_prompt(text, line["answer"], options.conversation)
        for line in PairLines(job.inputs["train"])
        for text in (wording.texts(line["instruction"]) if wording else [line["instruction"]])
    )
    with atomic_folder(folder) as making:
        engine_module("cxr.ils.training", options.engine).load(options, job.inputs, making, texts)


def _write_outputs(job: TrainingJob, course: Progress, model: Rosalia, adapters, tokens: Tokens, trained: dict) -> None:
    best = torch.load(Path(job.folder, "best.pt"), map_location="cpu", weights_only=True)
    with torch.no_grad():
        for name, value in trained.items():
            value.copy_(best[name])
    merge_adapters(model, adapters)
    with atomic_folder(job.outputs["model"]) as making:
        model.save_pretrained(making)  # one tensor at a time
        tokens.save(making)
    write_rows(job.outputs["updates"], course.updates, UPDATES)
    write_rows(job.outputs["epochs"], course.epochs, EPOCHS)


if __name__ == "__main__":
    run_worker(_train)
