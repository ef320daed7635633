"""The stage vlm_tuning: fine-tune a model on samples, in one process or in one a GPU, and record its course."""

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

from cxr.base.atomic import whole
from cxr.base.columns import schema
from cxr.base.conservation import CONSERVED, Counted
from cxr.base.engines import engine_module
from cxr.base.errors import UserError, refuse_empty
from cxr.base.seeds import rng, stable_hash
from cxr.base.tables import write_table
from cxr.base.unfinished import facts_of_files, prepare
from cxr.nets.devices import count_gpus, select_device
from cxr.nets.fitting.engine import make_runner
from cxr.nets.fitting.launch import catch_warning_signals, launch
from cxr.segmentation.kept import keep
from cxr.segmentation.losses import LossWeights
from cxr.segmentation.segmenter import Segmenter
from cxr.vlm.collate import Collator
from cxr.vlm.conventions import convention_of
from cxr.vlm.models import (
    ADAPTERS,
    MODEL,
    SEGMENTER,
    Loaded,
    base_of,
    load_model,
    make_tiny,
    with_seg,
    with_system,
    write_adapter,
    write_model,
    write_run,
)
from cxr.vlm.originals import Originals
from cxr.vlm.samples import PictureStore, Sample, read_samples, texts_of
from cxr.vlm.segmenting import Segmenting
from cxr.vlm.segs import MaskStore, aims_of
from cxr.vlm.tiles import BESIDE, differs, link, recut
from cxr.vlm.tokens import Reserved
from cxr.vlm.tuning.columns import LEFT_OUT, UPDATES
from cxr.vlm.tuning.conserved import of_lines, of_pass, of_passes
from cxr.vlm.tuning.fit import Course, Execution, Fit
from cxr.vlm.tuning.objective import MaskLoss, TextLoss
from cxr.vlm.tuning.recent import Recent
from cxr.vlm.tuning.recipe import Recipe, add_adapters, choose, optimiser

log = logging.getLogger("cxr")
WORKER = "cxr.vlm.tuning.worker"
PUBLISHED = "published"
"""The loss of the authors' code."""
START = "start"
"""Folder of the tiny random model, or of links to a base that is to cut pictures anew, beside the checkpoints."""
KEPT = 10**9
"""Bytes of encoded samples that stay in memory."""


@dataclass(frozen=True)
class TuningOptions:
    """Settings of one run.

    engine: tiny or a family; family: the architecture; convention: how boxes are written; side: pictures are shrunk to
    it, 0 for as they are; wording: another file of wordings; own: the recipe; model, revision: of the Hugging Face hub,
    where no folder is given; balance: none, or domain; init: of the engine tiny: random, or base; head: of masks
    ({start, loss, learning_rate}), {} for none; original: how the original images are decoded, {} where frames are
    shown; system_prompt: in place of the chat's own, "" for that; tasks: of the samples that are learned, empty for
    all; tiling: {tiles, grid}, how pictures are cut into tiles, {} for as the model does;
    sizes: of a model that is drawn, where its family takes them.
    """

    engine: str
    family: str
    convention: str
    side: int
    wording: str
    nan_limit: int
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
    sizes: dict = field(default_factory=dict)

    def facts(self) -> dict:
        """Return what the run's file tells of how its model is asked, but for its convention and base."""
        run_facts = {"family": self.family, "side": self.side, "wording": self.wording, "original": self.original}
        return run_facts | ({"system_prompt": self.system_prompt} if self.system_prompt else {})


@dataclass(frozen=True)
class Job:
    """A tuning described by builtins, so that it can be passed to other processes. originals: tables that name the
    images' files; masks: shards of them; sam: a file, for a head that starts from it; folder: of its checkpoints;
    folders: as :class:`PictureStore` takes them.
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
        """Return a digest of all that the result depends on: a checkpoint of a different run is never resumed."""
        digest = hashlib.sha256(json.dumps([self.options, self.attrs.get("code_digest", "")], sort_keys=True).encode())
        digest.update(Path(self.lines).read_bytes())
        # these files are large: their sizes reveal all but very unlikely changes
        for path in [*self.pictures, *self.originals, *self.masks, *filter(None, [self.base, self.sam])]:
            digest.update(facts_of_files(path))
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
    wording: str | list[str] = "",
    masks: list[str] | None = None,
    sam: str | list[str] = "",
    originals: list[str] | None = None,
    folders: dict[str, str] | None = None,
) -> None:
    """Tune a model on the samples ``lines``, whose pictures are in the shards ``pictures``.

    ``originals``: tables that name the images' files, where these are shown instead of their frames. ``folders``: as
    :class:`PictureStore` takes them. ``base``: folder of the model that it starts from; none for the engine tiny. With
    a head, ``masks`` are the shards that hold the masks of the samples' [SEG], and ``sam`` is the file of SAM that it
    starts from, if any. Writes the folder ``run`` (a whole model, or an adapter in peft's layout; a segmenter if it has
    a head; how it is asked) and the tables ``updates``, ``left_out`` and ``conservation``. After a kill it resumes at
    its last checkpoint, to the same bytes.
    Raises UserError for a user's mistake, AssertionError where a line or a sample was lost.
    """
    refuse_empty(lines, "to tune on")
    base = base_of(base, options.model, options.revision)
    folder = Path(run).with_name("checkpoint")
    sam = sam if isinstance(sam, str) else "".join(sam)
    job = Job(
        lines, list(pictures), list(originals or []), list(masks or []), base, sam, run, updates, left_out,
        conservation, asdict(options), attrs, compute, str(folder), dict(folders or {}),
    )  # fmt: skip
    samples = read_samples(lines, options.tasks) if options.original or options.tasks else ()
    if files := Originals.for_samples(job.originals, options.original, samples):
        files.check()
    _prepare(job)
    _make_start(job, options)
    if options.own["runner"] == "deepspeed":
        _launch(job)
    else:
        work(job)
    shutil.rmtree(folder)


def _prepare(job: Job) -> None:
    """Make the folder of checkpoints, and empty one that a different tuning left."""
    message = f"{job.folder} holds a checkpoint of other settings, samples or code: the tuning starts again"
    prepare(Path(job.folder), job.identity(), pattern="checkpoint.*", warning=message)


def _launch(job: Job) -> None:
    """Run :func:`work` in separate processes, one a GPU."""
    num_requested = job.compute.get("asked", job.compute["gpus"])
    processes = max(1, count_gpus(job.compute["device"], num_requested))
    Recipe(**job.options["own"]).shared(processes).micro_batches_per_step(
        processes
    )  # raises before any process is started
    path = Path(job.folder, "job.json")
    path.write_text(json.dumps(asdict(job)), encoding="utf-8")
    launch(WORKER, path, processes, job.compute["time_to_stop"], sys.executable)


def work(job: Job) -> None:
    """Run a tuning, or one process's share of it; if told to stop, it writes a checkpoint and ends."""
    with catch_warning_signals() as should_stop:
        _work(job, should_stop)


def start(job: Job, options: TuningOptions) -> Loaded:
    """Return the model that a tuning starts from: a tiny random one, or the one in ``base``."""
    low = options.own["dtype"] == "bfloat16" and (
        options.own["runner"] == "deepspeed" or options.own["method"] == "lora"
    )
    dtype = torch.bfloat16 if low else torch.float32
    loaded = load_model(options.family, _first(job), dtype)
    loaded = with_system(loaded, options.system_prompt)
    return with_seg(loaded, options.seed) if options.head else loaded


def _begun(job: Job, options: TuningOptions) -> bool:
    """Return whether there is a model to start from, so that none is drawn."""
    return options.engine != "tiny" or bool(job.base)


def _first(job: Job) -> Path:
    """Return the folder of the model that a tuning starts from."""
    start_dir = Path(job.folder, START)
    return start_dir if start_dir.is_dir() else Path(job.base)


def _make_start(job: Job, options: TuningOptions) -> None:
    """Make the model that a tuning starts from, before its processes are there to read it: a tiny random one, or one of
    links to the base, where that is to cut pictures in another way.
    """
    folder = Path(job.folder, START)
    if _begun(job, options):
        if differs(options.family, job.base, options.tiling):
            log.info("pictures are cut by %s, which is not as %s says", options.tiling, job.base)
            with whole(folder) as temporary_dir:
                link(options.family, job.base, temporary_dir, options.tiling)
        return
    if folder.is_dir():
        return
    samples, convention = read_samples(job.lines, options.tasks), convention_of(options.convention)
    seed = stable_hash(options.seed, "tiny") % 2**63
    with whole(folder) as temporary_dir:
        texts = [*texts_of(samples, convention, options.wording), options.system_prompt]
        make_tiny(options.family, temporary_dir, texts, options.side, seed, options.sizes)
        engine_module("cxr.vlm.starts", options.init).load(temporary_dir)
        recut(options.family, temporary_dir, options.tiling)


def kept(
    samples: list[Sample], collator: Collator, store: PictureStore, most: int, masks: MaskStore | None = None
) -> tuple[list, list[int], list]:
    """Return the samples that are learned, their lengths in tokens, and a row of each that is left out.

    ``masks``: those of the samples' [SEG], of a model that tells them.
    """
    learned_samples, lengths, excluded_rows = [], [], []
    for sample in samples:
        try:
            length = collator.length(sample, store.size(sample))
        except Reserved:
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


def balanced(samples: list[Sample], seed: int) -> list[int]:
    """Return the numbers of the samples, in order and all of them, so that every domain has as many as the largest.

    A smaller domain's samples are there again as a whole, and the rest of them drawn by seed.
    """
    numbers_by_domain: dict[str, list[int]] = {}
    for at, sample in enumerate(samples):
        numbers_by_domain.setdefault(sample.domain, []).append(at)
    most = max(map(len, numbers_by_domain.values()), default=0)
    numbers = list(range(len(samples)))
    for domain, domain_numbers in sorted(numbers_by_domain.items()):
        again, remainder = divmod(most, len(domain_numbers))
        numbers += domain_numbers * (again - 1) + sorted(rng(seed, "balance", domain).sample(domain_numbers, remainder))
    return numbers


def _work(job: Job, should_stop: Callable[[], bool]) -> None:
    options = TuningOptions(**job.options)
    recipe = Recipe(**options.own).shared(int(os.environ.get("WORLD_SIZE", 1)))
    samples = read_samples(job.lines, options.tasks)
    device = select_device(job.compute["device"], job.compute.get("asked"))
    loaded = start(job, options)
    marks = recipe.loss_on == PUBLISHED
    collator = Collator(loaded.family, loaded.tokens, convention_of(options.convention), options.wording, marks)
    originals = Originals.for_samples(job.originals, options.original, samples)
    with PictureStore(job.pictures, options.side, originals, job.folders) as store, MaskStore(job.masks) as masks:
        learned, lengths, excluded_rows = kept(
            samples, collator, store, recipe.max_length, masks if options.head else None
        )
        if not learned:
            requirement = f"at most max_length {recipe.max_length} tokens: raise it"
            if {row["reason"] for row in excluded_rows} == {"no_mask"}:
                requirement = "which every [SEG] has its mask: make masks and lines of the same threshold set"
            raise UserError(f"{job.lines} has no sample of {requirement}")
        counts = of_lines(job.lines, options.tasks, len(learned), excluded_rows)
        pass_order, number = range(len(learned)), len(learned)
        if options.balance == "domain":
            pass_order = balanced(learned, options.seed)
            learned, lengths = [learned[at] for at in pass_order], [lengths[at] for at in pass_order]
        counts += of_pass(len(lengths), number, pass_order)
        model = loaded.model
        if recipe.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
            model.enable_input_require_grads()
        torch.manual_seed(stable_hash(options.seed, "adapters") % 2**63)
        if recipe.method == "lora":
            model = add_adapters(model, loaded.family, recipe.lora, loaded.tokens.seg)
        full_model, objective = model, TextLoss()
        if options.head:
            full_model, objective = _with_head(job, options, model, learned, store)
            recipe = replace(recipe, rates=recipe.rates | {"segmenter": options.head["learning_rate"]})
        trained = choose(full_model, loaded.family, recipe)
        values = [sum(map(torch.numel, parameters)) for parameters in (trained.values(), full_model.parameters())]
        log.info("%d of %d samples are learned, %d of %d values trained", len(learned), len(samples), *values)
        patience = timedelta(seconds=job.compute.get("time_to_answer", 1800))
        adamw = optimiser(trained, loaded.family, recipe)
        runner = make_runner(recipe.runner, full_model, trained, adamw, recipe, device, patience)

        def encode(at: int):
            sample = learned[at]
            encoded = collator.encode(sample, store.get(sample))
            return (
                replace(encoded, aims=aims_of(sample, store, masks, full_model.segmenter.side))
                if options.head
                else encoded
            )

        execution = Execution(job.compute["checkpoint_every"], should_stop)
        fit = Fit(
            runner, lengths, Recent(encode, KEPT), collator.batch, objective, recipe, execution,
            tasks=[sample.task for sample in learned], folder=Path(job.folder), seed=options.seed,
            nan_limit=options.nan_limit,
        )  # fmt: skip
        course = fit.run()
        counts += of_passes(fit, course)
    with runner.gathered():
        if runner.rank == 0:
            tuned = Loaded(model, loaded.family, loaded.tokens)
            segmenter = full_model.segmenter if options.head else None
            _finish(job, options, course, tuned, segmenter, excluded_rows, counts, recipe.zero < 3)
    runner.wait()  # a rank that ends would close the others' connections


def _beside(source: Path | None, folder: Path) -> None:
    """Copy what lies beside a model's weights: other programs read its processors and templates."""
    folder.mkdir()
    for path in sorted(source.iterdir()) if source else ():
        if path.suffix in BESIDE and not path.name.endswith(".index.json"):
            shutil.copyfile(path, folder / path.name)


def _with_head(
    job: Job, options: TuningOptions, model: torch.nn.Module, learned: list[Sample], store: PictureStore
) -> tuple[Segmenting, MaskLoss]:
    """Return the model with a new segmenter, and what it minimises; SAM sees each picture once, if the disk allows."""
    hidden = model.config.get_text_config().hidden_size
    begin = engine_module("cxr.segmentation.starts", options.head["start"]).load
    segmenter = begin(hidden, job.sam, stable_hash(options.seed, "segmenter") % 2**63)
    segmenter.to(next(model.parameters()).dtype)
    segmenting = Segmenting(model, segmenter)
    views = sorted({store.view(sample) for sample in learned if sample.mask_ids})
    if job.compute.get("keep_features") and views:
        shapes, dtype = {"vision_encoder": segmenter.shape}, segmenter.project[0].weight.dtype
        view_keys = [(view, False) for view in views]
        segmenting.kept = keep(Path(job.folder, "features"), view_keys, shapes, dtype, "compute.keep_features")[
            "vision_encoder"
        ]
    return segmenting, MaskLoss(LossWeights(**options.head["loss"]))


def _finish(
    job: Job, options: TuningOptions, course: Course, loaded: Loaded, segmenter: Segmenter | None,
    excluded_rows: list[dict], counts: list[Counted], movable: bool,
) -> None:  # fmt: skip
    adapted = options.own["method"] == "lora"
    with whole(job.run) as temporary_dir:
        tiling_facts = {"tiling": options.tiling} if adapted and job.base and _first(job) != Path(job.base) else {}
        write_run(temporary_dir, **options.facts(), **tiling_facts, convention=options.convention, base=job.base)
        if movable:  # what ZeRO-3 has gathered stays where it is
            loaded.model.to("cpu")
            if segmenter:
                segmenter.to("cpu")
        if adapted:
            write_adapter(loaded.model, temporary_dir / ADAPTERS)
        else:
            folder = temporary_dir / MODEL
            _beside(_first(job) if job.base else None, folder)
            write_model(loaded, options.family, folder, options.own.get("names", "published"))
        if segmenter:
            segmenter.save(temporary_dir / SEGMENTER)
    write_table(job.updates, pl.DataFrame(course.updates, schema=schema(UPDATES)), UPDATES)
    write_table(job.left_out, pl.DataFrame(excluded_rows, schema=schema(LEFT_OUT)), LEFT_OUT)
    write_table(job.conservation, pl.DataFrame(counts, schema=schema(CONSERVED), orient="row"), CONSERVED)
