"""The stage vlm_tuning: fine-tune a model on samples, in one process or in one process per GPU."""

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

from cxr.base.atomic import atomic_folder
from cxr.base.conservation import CONSERVED
from cxr.base.engines import engine_module
from cxr.base.errors import UserError, refuse_empty
from cxr.base.seeds import make_rng, stable_hash
from cxr.base.tables import write_rows
from cxr.nets.devices import select_device
from cxr.nets.fitting.launch import TrainingJob, run_worker
from cxr.nets.fitting.loop import make_runner
from cxr.segmentation.encoder_cache import open_disk_caches
from cxr.segmentation.segmenter import TRAINED_PREFIXES, Segmenter
from cxr.vlm import models, tiny_base
from cxr.vlm.collate import Collator
from cxr.vlm.columns import EXCLUDED, UPDATES
from cxr.vlm.conventions import find_convention
from cxr.vlm.families.engine import PARTS, Family, part_of
from cxr.vlm.originals import Originals
from cxr.vlm.samples import ImageStore, Sample, all_texts, read_samples
from cxr.vlm.segmenting import MaskStore, SegmentingModel, mask_targets
from cxr.vlm.tokens import ReservedTokenError
from cxr.vlm.tuning.fit import EncodedCache, MaskLoss, TextLoss, TuningLoop, count_lines, count_pass, count_passes
from cxr.vlm.tuning.settings import Recipe, VlmLora

log = logging.getLogger("cxr")
WORKER = "cxr.vlm.tuning.tune"  # module of one process: ``python -m cxr.vlm.tuning.tune job.json``
START = "start"  # folder, next to the checkpoints, of the tiny random model or of links to a base with another tiling
CACHE_BYTES = 10**9  # maximum size of the cache of encoded samples, bytes


@dataclass(frozen=True)
class TuningOptions:
    """Settings of one run. ``engine`` is tiny or the name of a family, and ``family`` is the architecture.

    ``convention`` is the box format. ``side`` is the maximum side of an image in px, 0 for no limit.
    ``recipe`` holds the fields of :class:`Recipe`. ``model`` and ``revision`` name the base model on Hugging Face, if
    no folder is given. ``balance`` is none or domain. ``init`` names the initial weights of a tiny engine. ``head`` is
    {start, learning_rate} of the mask head, {} for none. ``original`` holds the decoding settings of original images,
    {} to use frames. ``system_prompt`` replaces the family's prompt unless it is "". ``tasks`` selects the training
    samples, all if empty. ``tiling`` is {tiles, grid} of images, {} to keep the model's tiling.
    """

    engine: str
    family: str
    convention: str
    side: int
    seed: int
    recipe: dict
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
        """Return the settings for the run file (run.json), except for convention and base."""
        run_facts = {"family": self.family, "side": self.side, "original": self.original}
        return run_facts | ({"system_prompt": self.system_prompt} if self.system_prompt else {})


BETAS = (0.9, 0.999)  # decay rates of AdamW's two moments (RadVLM's code)
ADAPTER = ("lora_", "trainable_tokens_")  # peft's names of adapter tensors: of layers, and of rows of tokens
LANGUAGE, ALL = "language", "all"
EMBEDDING, HEAD = "embed_tokens", "lm_head"  # names of the layers with one row per token
SEGMENTER = "segmenter."  # prefix of a segmenter's tensors; without the dot, the name of its learning rate


def add_adapters(model: nn.Module, family: Family, lora: VlmLora, token: int | None = None) -> PeftModel:
    """Add adapters, at first without effect, to a model. ``token``: id of a new token, whose rows are trained too."""
    parts = (LANGUAGE,) if lora.target == LANGUAGE else PARTS
    names = [  # not the head, because it may share its weights with the embedding
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and part_of(family, f"{name}.") in parts and not name.endswith(HEAD)
    ]
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=names)
    if token is not None:
        tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        config.trainable_token_indices = {name: [token] for name in (EMBEDDING, *([] if tied else [HEAD]))}
    return get_peft_model(model, config)


def select_trained(model: nn.Module, family: Family, recipe: Recipe) -> dict[str, nn.Parameter]:
    """Freeze everything except adapters, mask head and the parts to train. Return {name: trained parameter}."""
    for name, parameter in model.named_parameters():
        idle = any(prefix in name for prefix in getattr(family, "idle", ()))  # has no gradient
        full = recipe.method == "full" and part_of(family, name) in recipe.parts and not idle
        if name.startswith(SEGMENTER):
            full = name.removeprefix(SEGMENTER).startswith(TRAINED_PREFIXES)
        parameter.requires_grad_(full or any(mark in name for mark in ADAPTER))
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not trained:
        raise UserError("vlm.tuning: no part of the model is trained: name vision, projector or language in parts")
    return trained


def make_optimizer(parameters: dict[str, nn.Parameter], family: Family, recipe: Recipe) -> torch.optim.AdamW:
    """Return AdamW with a group per part. A group's ``scale``: its learning rate divided by that of ``recipe``."""
    groups: dict[str, list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        part = SEGMENTER[:-1] if name.startswith(SEGMENTER) else part_of(family, name)
        groups.setdefault(part, []).append(parameter)
    scales = {part: recipe.rates.get(part, recipe.learning_rate) / recipe.learning_rate for part in groups}
    param_groups = [{"params": tensors, "scale": scales[part], "part": part} for part, tensors in groups.items()]
    return torch.optim.AdamW(param_groups, lr=0.0, betas=BETAS, weight_decay=0.0)


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
    """Tune a model on the samples in the file ``lines``, whose images are in the shards ``pictures``.

    ``base`` is the folder of the base model, if there is one. ``originals`` are tables of the original images, if these
    are used instead of frames. ``folders`` is as in :class:`ImageStore`. A run with a mask head has ``masks``, shards
    of the masks of each [SEG], and ``sam``, SAM's weights. The results are the folder ``run`` (a model or an adapter, a
    segmenter if there is a mask head, and the run file) and three tables. An interrupted tuning resumes at its last
    checkpoint, with the same final bytes. Raises UserError for invalid input, AssertionError if a sample was lost.
    """
    refuse_empty(lines, "to tune on")
    inputs = {"lines": lines, "base": models.base_folder(base, options.model, options.revision), "sam": "".join(sam)}
    inputs |= {"pictures": list(pictures), "originals": list(originals or []), "masks": list(masks or [])}
    outputs = {"run": run, "updates": updates, "left_out": left_out, "conservation": conservation}
    folder, compute = Path(run).with_name("checkpoint"), compute | {"folders": dict(folders or {})}
    job = TrainingJob(inputs, outputs, asdict(options), attrs, compute, str(folder))
    samples = read_samples(lines, options.tasks) if options.original or options.tasks else ()
    if files := Originals.for_samples(inputs["originals"], options.original, samples):
        files.check()
    job.prepare_folder()
    _make_start(job, options)
    job.run(WORKER, Recipe.from_dict(options.recipe), _tune)


def _start_folder(job: TrainingJob) -> Path:
    start_dir = Path(job.folder, START)
    return start_dir if start_dir.is_dir() else Path(job.inputs["base"])


def _make_start(job: TrainingJob, options: TuningOptions) -> None:
    """Make the initial model before the training processes start: a tiny random model, or links to the base model's
    weights with a changed image tiling. Nothing is made if the base model can be used as it is."""
    folder, family, base = Path(job.folder, START), options.family, job.inputs["base"]
    if options.engine != "tiny" or base:
        if models.needs_tiling(family, base, options.tiling):
            log.info("images are cut into tiles by %s, not by the configuration in %s", options.tiling, base)
            with atomic_folder(folder) as temporary_dir:
                models.link_model(family, base, temporary_dir, options.tiling)
    elif not folder.is_dir():
        samples, convention = read_samples(job.inputs["lines"], options.tasks), find_convention(options.convention)
        texts = [*all_texts(samples, convention), options.system_prompt]
        with atomic_folder(folder) as temporary_dir:
            models.make_tiny(family, temporary_dir, texts, options.side, stable_hash(options.seed, "tiny") % 2**63)
            if options.init != "random":
                tiny_base.load_base(temporary_dir, with_masks=options.init == "base_masks")
            models.apply_tiling(family, temporary_dir, options.tiling)


def select_samples(
    samples: list[Sample], collator: Collator, store: ImageStore, most: int, masks: MaskStore | None = None
) -> tuple[list, list[int], list]:
    """Return (samples to learn, their lengths in tokens, a row per excluded sample).

    A sample is excluded if it has more than ``most`` tokens, a reserved token, or a [SEG] without a mask in ``masks``.
    """
    learned_samples, lengths, excluded_rows = [], [], []
    for sample in samples:
        length = 0
        try:
            length = collator.length(sample, store.size(sample))
            reason = "too_long" if length > most else ""
            reason = "no_mask" if masks is not None and not masks.has(sample) else reason
        except ReservedTokenError:
            reason = "reserved"
        if reason:
            excluded_rows.append({"sample_id": sample.sample_id, "reason": reason, "tokens": length})
        else:
            learned_samples.append(sample)
            lengths.append(length)
    return learned_samples, lengths, excluded_rows


def balance_domains(samples: list[Sample], seed: int) -> list[int]:
    """Return all sample indices, then repeats, so that every image domain has as many samples as the largest domain."""
    numbers_by_domain: dict[str, list[int]] = {}
    for at, sample in enumerate(samples):
        numbers_by_domain.setdefault(sample.domain, []).append(at)
    most = max(map(len, numbers_by_domain.values()), default=0)
    numbers = list(range(len(samples)))
    for domain, domain_numbers in sorted(numbers_by_domain.items()):
        again, remainder = divmod(most, len(domain_numbers))
        numbers += domain_numbers * (again - 1)
        numbers += sorted(make_rng(seed, "balance", domain).sample(domain_numbers, remainder))
    return numbers


def _tune(job: TrainingJob, should_stop: Callable[[], bool]) -> None:
    options, inputs = TuningOptions(**job.options), job.inputs
    recipe = Recipe.from_dict(options.recipe).shared(int(os.environ.get("WORLD_SIZE", 1)))
    samples = read_samples(inputs["lines"], options.tasks)
    device = select_device(job.compute["device"], job.compute.get("asked"))
    is_low = recipe.dtype == "bfloat16" and (recipe.runner == "deepspeed" or recipe.method == "lora")
    loaded = models.load_model(options.family, _start_folder(job), torch.bfloat16 if is_low else torch.float32)
    loaded = replace(loaded, tokens=loaded.tokens.with_system(options.system_prompt))
    if options.head:
        loaded = models.add_seg_token(loaded, options.seed)
    convention, marks = find_convention(options.convention), recipe.loss_on == "published"
    collator = Collator(loaded.family, loaded.tokens, convention, marks)
    originals = Originals.for_samples(inputs["originals"], options.original, samples)
    images = ImageStore(inputs["pictures"], options.side, originals, job.compute["folders"])
    with images as store, MaskStore(inputs["masks"]) as masks:
        some_masks = masks if options.head else None
        learned, lengths, excluded_rows = select_samples(samples, collator, store, recipe.max_length, some_masks)
        if not learned:
            requirement = f"of at most max_length {recipe.max_length} tokens: raise max_length"
            if {row["reason"] for row in excluded_rows} == {"no_mask"}:
                requirement = "with a mask for every [SEG]: make masks and samples of the same threshold set"
            raise UserError(f"{inputs['lines']} has no sample {requirement}")
        counts = count_lines(inputs["lines"], options.tasks, len(learned), excluded_rows)
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
            full_model, objective = _add_segmenter(job, options, model, learned, store), MaskLoss()
            recipe = replace(recipe, rates=recipe.rates | {"segmenter": options.head["learning_rate"]})
        trained = select_trained(full_model, loaded.family, recipe)
        values = [sum(map(torch.numel, parameters)) for parameters in (trained.values(), full_model.parameters())]
        log.info("%d of %d samples are learned, %d of %d values trained", len(learned), len(samples), *values)
        patience = timedelta(seconds=job.compute.get("time_to_answer", 1800))
        adamw = make_optimizer(trained, loaded.family, recipe)
        runner = make_runner(recipe.runner, full_model, trained, adamw, recipe, device, patience)

        def encode(at: int):
            encoded = collator.encode(learned[at], store.get(learned[at]))
            if not options.head:
                return encoded
            return replace(encoded, aims=mask_targets(learned[at], store, masks, full_model.segmenter.side))

        fit = TuningLoop(
            runner, Path(job.folder), options.seed, job.compute["checkpoint_every"], should_stop, lengths=lengths,
            tasks=[sample.task for sample in learned], encode=EncodedCache(encode, CACHE_BYTES),
            collate=collator.batch, objective=objective, recipe=recipe,
        )  # fmt: skip
        course = fit.run()
        counts += count_passes(fit, course)
    with runner.gathered():
        if runner.rank == 0:
            if recipe.zero < 3:  # tensors gathered by ZeRO-3 stay where they are
                full_model.to("cpu")
            _write_run(job, options, replace(loaded, model=model), getattr(full_model, "segmenter", None))
            write_rows(job.outputs["updates"], course.updates, UPDATES)
            write_rows(job.outputs["left_out"], excluded_rows, EXCLUDED)
            write_rows(job.outputs["conservation"], counts, CONSERVED)
    runner.wait()  # a rank that ends early would close the others' connections


def _add_segmenter(
    job: TrainingJob, options: TuningOptions, model: torch.nn.Module, learned: list[Sample], store: ImageStore
) -> SegmentingModel:
    """Return the model with a new segmenter. With compute.keep_features, SAM's image embeddings are kept on disk."""
    begin = engine_module("cxr.segmentation.starts", options.head["start"]).load
    hidden = model.config.get_text_config().hidden_size
    segmenter = begin(hidden, job.inputs["sam"], stable_hash(options.seed, "segmenter") % 2**63)
    segmenter.to(next(model.parameters()).dtype)
    segmenting = SegmentingModel(model, segmenter)
    views = [(view, False) for view in sorted({store.view(sample) for sample in learned if sample.mask_ids})]
    if job.compute.get("keep_features") and views:
        shapes, dtype = {"vision_encoder": segmenter.shape}, segmenter.project[0].weight.dtype
        caches = open_disk_caches(Path(job.folder, "features"), views, shapes, dtype, "compute.keep_features")
        segmenting.embedding_cache = caches["vision_encoder"]
    return segmenting


def _write_run(job: TrainingJob, options: TuningOptions, loaded: models.Loaded, segmenter: Segmenter | None) -> None:
    base, start = job.inputs["base"], _start_folder(job)
    is_adapted = options.recipe["method"] == "lora"
    with atomic_folder(job.outputs["run"]) as folder:
        tiling_facts = {"tiling": options.tiling} if is_adapted and base and start != Path(base) else {}
        models.write_run(folder, **options.facts(), **tiling_facts, convention=options.convention, base=base)
        if is_adapted:
            models.write_adapter(loaded.model, folder / models.ADAPTERS)
        else:
            model_folder = folder / models.MODEL
            model_folder.mkdir()
            for path in sorted(start.iterdir()) if base else ():  # other programs read its processors and templates
                if path.suffix in models.SIDE_FILE_SUFFIXES and not path.name.endswith(".index.json"):
                    shutil.copyfile(path, model_folder / path.name)
            models.write_model(loaded, options.family, model_folder)
        if segmenter:
            segmenter.save(folder / models.SEGMENTER)


if __name__ == "__main__":
    run_worker(_tune)
