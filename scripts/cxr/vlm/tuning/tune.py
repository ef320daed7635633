"""The stage vlm_tuning: fine-tune a model on samples, in one process or one per GPU."""

import hashlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import torch

from cxr.base.atomic import atomic_folder
from cxr.base.columns import schema
from cxr.base.conservation import CONSERVED, CountRow
from cxr.base.engines import engine_module
from cxr.base.errors import UserError, refuse_empty
from cxr.base.seeds import make_rng, stable_hash
from cxr.base.tables import write_table
from cxr.base.unfinished_work import describe_files, prepare_folder
from cxr.nets.devices import count_gpus, select_device
from cxr.nets.fitting.engine import make_runner
from cxr.nets.fitting.launch import catch_warning_signals, launch, run_process
from cxr.segmentation.encoder_cache import open_disk_caches
from cxr.segmentation.segmenter import Segmenter
from cxr.vlm import tiny_base
from cxr.vlm.collate import Collator
from cxr.vlm.columns import EXCLUDED, UPDATES
from cxr.vlm.conventions import find_convention
from cxr.vlm.models import (
    ADAPTERS,
    MODEL,
    SEGMENTER,
    SIDE_FILE_SUFFIXES,
    Loaded,
    add_seg_token,
    apply_tiling,
    base_folder,
    link_model,
    load_model,
    make_tiny,
    needs_tiling,
    write_adapter,
    write_model,
    write_run,
)
from cxr.vlm.originals import Originals
from cxr.vlm.samples import ImageStore, Sample, all_texts, read_samples
from cxr.vlm.segmenting import MaskStore, SegmentingModel, mask_targets
from cxr.vlm.tokens import ReservedTokenError
from cxr.vlm.tuning.conservation import count_lines, count_pass, count_passes
from cxr.vlm.tuning.fit import EncodedCache, TrainingLog, TuningLoop
from cxr.vlm.tuning.objective import MaskLoss, TextLoss
from cxr.vlm.tuning.recipe import add_adapters, make_optimizer, select_trained
from cxr.vlm.tuning.settings import Recipe

log = logging.getLogger("cxr")
WORKER = "cxr.vlm.tuning.tune"
"""Module of one process of a distributed tuning: ``python -m cxr.vlm.tuning.tune job.json``."""
START = "start"
"""Folder, next to the checkpoints, of the tiny random model or of links to a base with another tiling."""
CACHE_BYTES = 10**9
"""Maximum size of the cache of encoded samples, bytes."""


@dataclass(frozen=True)
class TuningOptions:
    """Settings of one run.

    engine: tiny or a family; family: the architecture; convention: of box coordinates; side: maximum image side, px, 0
    for no limit; own: the recipe; model, revision: on the Hugging Face hub, if no folder is given; balance: none or
    domain; init: of the engine tiny; head: for masks ({start, learning_rate}), {} for none; original: how original
    images are decoded, {} to use frames; system_prompt: replaces the family's, "" keeps it; tasks: of the training
    samples, empty for all; tiling: {tiles, grid} of images, {} for the model's own.
    """

    engine: str
    family: str
    convention: str
    side: int
    seed: int
    own: dict
    model: str = ""
    revision: str = ""
    balance: str = "none"
    init: str = "random"
    head: dict = field(default_factory=dict)
    original: dict = field(default_factory=dict)
    system_prompt: str = ""
    tasks: list = field(default_factory=list)
    tiling: dict = field(default_factory=dict)

    def facts(self) -> dict:
        """Return the content of the run's file, except convention and base."""
        run_facts = {"family": self.family, "side": self.side, "original": self.original}
        return run_facts | ({"system_prompt": self.system_prompt} if self.system_prompt else {})


@dataclass(frozen=True)
class Job:
    """A tuning in builtins, so that it can be passed to other processes. originals: tables with the paths of original
    images; masks: shards; sam: file of SAM for a head that starts from it; folder: of checkpoints; folders: see
    :class:`ImageStore`.
    """

    lines: str
    pictures: list
    originals: list
    masks: list
    base: str
    sam: str
    run: str
    updates: str
    left_out: str
    conservation: str
    options: dict
    attrs: dict
    compute: dict
    folder: str
    folders: dict

    def identity(self) -> str:
        """Return a digest of everything the result depends on: a checkpoint of another tuning is never resumed."""
        digest = hashlib.sha256(json.dumps([self.options, self.attrs.get("code_digest", "")], sort_keys=True).encode())
        digest.update(Path(self.lines).read_bytes())
        # these files are large: only their names and sizes are compared
        for path in [*self.pictures, *self.originals, *self.masks, *filter(None, [self.base, self.sam])]:
            digest.update(describe_files(path))
        return digest.hexdigest()


def run_tuning(
    *,
    lines: str,
    pictures: list[str],
    run: str,
    updates: str,
    left_out: str,
    conservation: str,
    options: TuningOptions,
    attrs: dict,
    compute: dict,
    base: str | list[str] = "",
    masks: list[str] | None = None,
    sam: str | list[str] = "",
    originals: list[str] | None = None,
    folders: dict[str, str] | None = None,
) -> None:
    """Tune a model on the samples ``lines``, whose images are in the shards ``pictures``.

    ``base``: folder of the base model; none for the engine tiny. ``originals``: tables with the paths of the original
    images, if these are used instead of frames. ``folders``: see :class:`ImageStore`. ``masks``: shards of the masks of
    the samples' [SEG], and ``sam``: file of SAM's weights, both for a run with a head.
    Writes the folder ``run`` (a whole model or an adapter in peft's layout, a segmenter if it has a head, and the run
    file) and the tables ``updates``, ``left_out`` and ``conservation``. An interrupted tuning resumes at its last
    checkpoint, with the same bytes. Raises UserError for invalid input, AssertionError if a line or sample was lost.
    """
    refuse_empty(lines, "to tune on")
    base = base_folder(base, options.model, options.revision)
    folder = Path(run).with_name("checkpoint")
    sam = sam if isinstance(sam, str) else "".join(sam)
    job = Job(
        lines, list(pictures), list(originals or []), list(masks or []), base, sam, run, updates, left_out,
        conservation, asdict(options), attrs, compute, str(folder), dict(folders or {}),
    )  # fmt: skip
    samples = read_samples(lines, options.tasks) if options.original or options.tasks else ()
    if files := Originals.for_samples(job.originals, options.original, samples):
        files.check()
    warning = f"{folder} holds a checkpoint of other settings, samples or code: the tuning restarts"
    prepare_folder(folder, job.identity(), pattern="checkpoint.*", warning=warning)
    _make_start(job, options)
    if options.own["runner"] == "deepspeed":
        _launch(job)
    else:
        run_job(job)
    shutil.rmtree(folder)


def _launch(job: Job) -> None:
    """Run :func:`run_job` in separate processes, one per GPU."""
    num_requested = job.compute.get("asked", job.compute["gpus"])
    processes = max(1, count_gpus(job.compute["device"], num_requested))
    # raises before any process starts
    Recipe.from_dict(job.options["own"]).shared(processes).micro_batches_per_step(processes)
    path = Path(job.folder, "job.json")
    path.write_text(json.dumps(asdict(job)), encoding="utf-8")
    launch(WORKER, path, processes, job.compute["time_to_stop"], sys.executable)


def run_job(job: Job) -> None:
    """Run a tuning, or one process of it; on a stop signal it writes a checkpoint and ends."""
    with catch_warning_signals() as should_stop:
        _tune(job, should_stop)


def load_start(job: Job, options: TuningOptions) -> Loaded:
    """Return the initial model of a tuning: a tiny random one, or the base."""
    low = options.own["dtype"] == "bfloat16" and (
        options.own["runner"] == "deepspeed" or options.own["method"] == "lora"
    )
    dtype = torch.bfloat16 if low else torch.float32
    loaded = load_model(options.family, _start_folder(job), dtype)
    loaded = replace(loaded, tokens=loaded.tokens.with_system(options.system_prompt))
    return add_seg_token(loaded, options.seed) if options.head else loaded


def _start_folder(job: Job) -> Path:
    """Return the folder of the initial model."""
    start_dir = Path(job.folder, START)
    return start_dir if start_dir.is_dir() else Path(job.base)


def _make_start(job: Job, options: TuningOptions) -> None:
    """Make the initial model before any process reads it: a tiny random one, or links to the base with a new tiling."""
    folder = Path(job.folder, START)
    if options.engine != "tiny" or job.base:
        if needs_tiling(options.family, job.base, options.tiling):
            log.info("images are tiled by %s, which differs from %s", options.tiling, job.base)
            with atomic_folder(folder) as temporary_dir:
                link_model(options.family, job.base, temporary_dir, options.tiling)
        return
    if folder.is_dir():
        return
    samples, convention = read_samples(job.lines, options.tasks), find_convention(options.convention)
    seed = stable_hash(options.seed, "tiny") % 2**63
    with atomic_folder(folder) as temporary_dir:
        texts = [*all_texts(samples, convention), options.system_prompt]
        make_tiny(options.family, temporary_dir, texts, options.side, seed)
        if options.init != "random":
            tiny_base.load_base(temporary_dir, with_masks=options.init == "base_masks")
        apply_tiling(options.family, temporary_dir, options.tiling)


def select_samples(
    samples: list[Sample], collator: Collator, store: ImageStore, most: int, masks: MaskStore | None = None
) -> tuple[list, list[int], list]:
    """Return the training samples, their lengths in tokens, and a row for each excluded sample.

    ``masks``: of the samples' [SEG], for a segmenting model.
    """
    learned_samples, lengths, excluded_rows = [], [], []
    for sample in samples:
        try:
            length = collator.length(sample, store.size(sample))
        except ReservedTokenError:
            excluded_rows.append({"sample_id": sample.sample_id, "reason": "reserved", "tokens": 0})
            continue
        if masks is not None and not masks.has(sample):
            excluded_rows.append({"sample_id": sample.sample_id, "reason": "no_mask", "tokens": length})
        elif length > most:
            excluded_rows.append({"sample_id": sample.sample_id, "reason": "too_long", "tokens": length})
        else:
            learned_samples.append(sample)
            lengths.append(length)
    return learned_samples, lengths, excluded_rows


def balance_domains(samples: list[Sample], seed: int) -> list[int]:
    """Return sample indices, first all in order, then repeats so that every domain has as many as the largest.

    The samples of a smaller domain are repeated as often as they fit; the remainder is drawn by seed.
    """
    numbers_by_domain: dict[str, list[int]] = {}
    for at, sample in enumerate(samples):
        numbers_by_domain.setdefault(sample.domain, []).append(at)
    most = max(map(len, numbers_by_domain.values()), default=0)
    numbers = list(range(len(samples)))
    for domain, domain_numbers in sorted(numbers_by_domain.items()):
        again, remainder = divmod(most, len(domain_numbers))
        numbers += domain_numbers * (again - 1) + sorted(
            make_rng(seed, "balance", domain).sample(domain_numbers, remainder)
        )
    return numbers


def _tune(job: Job, should_stop: Callable[[], bool]) -> None:
    options = TuningOptions(**job.options)
    recipe = Recipe.from_dict(options.own).shared(int(os.environ.get("WORLD_SIZE", 1)))
    samples = read_samples(job.lines, options.tasks)
    device = select_device(job.compute["device"], job.compute.get("asked"))
    loaded = load_start(job, options)
    marks = recipe.loss_on == "published"
    collator = Collator(loaded.family, loaded.tokens, find_convention(options.convention), marks)
    originals = Originals.for_samples(job.originals, options.original, samples)
    with ImageStore(job.pictures, options.side, originals, job.folders) as store, MaskStore(job.masks) as masks:
        learned, lengths, excluded_rows = select_samples(
            samples, collator, store, recipe.max_length, masks if options.head else None
        )
        if not learned:
            requirement = f"at most max_length {recipe.max_length} tokens: raise it"
            if {row["reason"] for row in excluded_rows} == {"no_mask"}:
                requirement = "which every [SEG] has its mask: make masks and lines of the same threshold set"
            raise UserError(f"{job.lines} has no sample of {requirement}")
        counts = count_lines(job.lines, options.tasks, len(learned), excluded_rows)
        pass_order, number = range(len(learned)), len(learned)
        if options.balance == "domain":
            pass_order = balance_domains(learned, options.seed)
            learned, lengths = [learned[at] for at in pass_order], [lengths[at] for at in pass_order]
        counts += count_pass(len(lengths), number, pass_order)
        model = loaded.model
        if options.engine != "tiny":  # saves memory
            model.gradient_checkpointing_enable({"use_reentrant": False})
            model.enable_input_require_grads()
        torch.manual_seed(stable_hash(options.seed, "adapters") % 2**63)
        if recipe.method == "lora":
            model = add_adapters(model, loaded.family, recipe.lora, loaded.tokens.seg)
        full_model, objective = model, TextLoss()
        if options.head:
            full_model, objective = _add_head(job, options, model, learned, store)
            recipe = replace(recipe, rates=recipe.rates | {"segmenter": options.head["learning_rate"]})
        trained = select_trained(full_model, loaded.family, recipe)
        values = [sum(map(torch.numel, parameters)) for parameters in (trained.values(), full_model.parameters())]
        log.info("%d of %d samples are learned, %d of %d values trained", len(learned), len(samples), *values)
        patience = timedelta(seconds=job.compute.get("time_to_answer", 1800))
        adamw = make_optimizer(trained, loaded.family, recipe)
        runner = make_runner(recipe.runner, full_model, trained, adamw, recipe, device, patience)

        def encode(at: int):
            sample = learned[at]
            encoded = collator.encode(sample, store.get(sample))
            return (
                replace(encoded, aims=mask_targets(sample, store, masks, full_model.segmenter.side))
                if options.head
                else encoded
            )

        fit = TuningLoop(
            runner, lengths, EncodedCache(encode, CACHE_BYTES), collator.batch, objective, recipe,
            tasks=[sample.task for sample in learned], folder=Path(job.folder), seed=options.seed,
            checkpoint_every=job.compute["checkpoint_every"], should_stop=should_stop,
        )  # fmt: skip
        course = fit.run()
        counts += count_passes(fit, course)
    with runner.gathered():
        if runner.rank == 0:
            tuned = Loaded(model, loaded.family, loaded.tokens)
            segmenter = full_model.segmenter if options.head else None
            _write_results(job, options, course, tuned, segmenter, excluded_rows, counts, recipe.zero < 3)
    runner.wait()  # a rank that ends early would close the others' connections


def _copy_side_files(source: Path | None, folder: Path) -> None:
    """Copy the files next to a model's weights: other programs read its processors and templates."""
    folder.mkdir()
    for path in sorted(source.iterdir()) if source else ():
        if path.suffix in SIDE_FILE_SUFFIXES and not path.name.endswith(".index.json"):
            shutil.copyfile(path, folder / path.name)


def _add_head(
    job: Job, options: TuningOptions, model: torch.nn.Module, learned: list[Sample], store: ImageStore
) -> tuple[SegmentingModel, MaskLoss]:
    """Return the model with a new segmenter, and its objective. SAM's image embeddings are cached if set."""
    hidden = model.config.get_text_config().hidden_size
    begin = engine_module("cxr.segmentation.starts", options.head["start"]).load
    segmenter = begin(hidden, job.sam, stable_hash(options.seed, "segmenter") % 2**63)
    segmenter.to(next(model.parameters()).dtype)
    segmenting = SegmentingModel(model, segmenter)
    views = sorted({store.view(sample) for sample in learned if sample.mask_ids})
    if job.compute.get("keep_features") and views:
        shapes, dtype = {"vision_encoder": segmenter.shape}, segmenter.project[0].weight.dtype
        view_keys = [(view, False) for view in views]
        segmenting.embedding_cache = open_disk_caches(
            Path(job.folder, "features"), view_keys, shapes, dtype, "compute.keep_features"
        )["vision_encoder"]
    return segmenting, MaskLoss()


def _write_results(
    job: Job, options: TuningOptions, course: TrainingLog, loaded: Loaded, segmenter: Segmenter | None,
    excluded_rows: list[dict], counts: list[CountRow], movable: bool,
) -> None:  # fmt: skip
    adapted = options.own["method"] == "lora"
    with atomic_folder(job.run) as temporary_dir:
        tiling_facts = (
            {"tiling": options.tiling} if adapted and job.base and _start_folder(job) != Path(job.base) else {}
        )
        write_run(temporary_dir, **options.facts(), **tiling_facts, convention=options.convention, base=job.base)
        if movable:  # tensors gathered by ZeRO-3 stay where they are
            loaded.model.to("cpu")
            if segmenter:
                segmenter.to("cpu")
        if adapted:
            write_adapter(loaded.model, temporary_dir / ADAPTERS)
        else:
            folder = temporary_dir / MODEL
            _copy_side_files(_start_folder(job) if job.base else None, folder)
            write_model(loaded, options.family, folder)
        if segmenter:
            segmenter.save(temporary_dir / SEGMENTER)
    write_table(job.updates, pl.DataFrame(course.updates, schema=schema(UPDATES)), UPDATES)
    write_table(job.left_out, pl.DataFrame(excluded_rows, schema=schema(EXCLUDED)), EXCLUDED)
    write_table(job.conservation, pl.DataFrame(counts, schema=schema(CONSERVED), orient="row"), CONSERVED)


if __name__ == "__main__":
    run_process(Path(sys.argv[1]), lambda text: run_job(Job(**json.loads(text))))
