"""Renamed and removed settings: an old settings file is refused, with one sentence for each."""

from collections.abc import Iterator

MIMIC_ILS = "mimic_ils"
"""Name of the dataset of ``dataset.mimic_ils`` in settings that name a threshold set."""
MOVED = {
    "dataset.release": "dataset.mimic_ils",
    "dataset.release_images": "dataset.mimic_ils_images",
    "dataset.released_layout": "dataset.mimic_ils_layout",
    "review.of": "review.items",
}
"""{old key: new key}."""
REMOVED = {
    "masks.denoise": "both",
    "masks.min_component_px": "64",
    "masks.grow_tolerance": "10",
    "masks.grow_px": "5",
    "masks.effusion_fill_share": "0.15",
    "masks.opposite_lung": "cut",
    "masks.ground_min_px": "64",
    "masks.ground_min_share": "0.05",
    "masks.name_min_share": "0.1",
    "dataset.global_requires_definitive": "true",
    "reports.llm.dtype": "auto",
    "reports.llm.retries": "2",
    "reports.llm.retry_temperature": "0.5, or temperature if that is higher",
    "paraphrase.llm.dtype": "auto",
    "paraphrase.llm.retries": "2",
    "paraphrase.llm.retry_temperature": "0.5, or temperature if that is higher",
    "medground.queries.llm.dtype": "auto",
    "medground.queries.llm.retries": "2",
    "medground.queries.llm.retry_temperature": "0.5, or temperature if that is higher",
    "medground.verification.llm.dtype": "auto",
    "medground.verification.llm.retries": "2",
    "medground.verification.llm.retry_temperature": "0.5, or temperature if that is higher",
    "radvlm.filtered.llm.dtype": "auto",
    "radvlm.filtered.llm.retries": "2",
    "radvlm.filtered.llm.retry_temperature": "0.5, or temperature if that is higher",
    "radvlm.conversations.llm.dtype": "auto",
    "radvlm.conversations.llm.retries": "2",
    "radvlm.conversations.llm.retry_temperature": "0.5, or temperature if that is higher",
    "radvlm.evaluation.llm.dtype": "auto",
    "radvlm.evaluation.llm.retries": "2",
    "radvlm.evaluation.llm.retry_temperature": "0.5, or temperature if that is higher",
    "radvlm.evaluation.green.dtype": "auto",
    "radvlm.evaluation.green.retries": "2",
    "radvlm.evaluation.green.retry_temperature": "0.5, or temperature if that is higher",
    "reports.llm.execution.eager": "true on the CPU, false on GPUs",
    "paraphrase.llm.execution.eager": "true on the CPU, false on GPUs",
    "medground.queries.llm.execution.eager": "true on the CPU, false on GPUs",
    "medground.verification.llm.execution.eager": "true on the CPU, false on GPUs",
    "radvlm.filtered.llm.execution.eager": "true on the CPU, false on GPUs",
    "radvlm.conversations.llm.execution.eager": "true on the CPU, false on GPUs",
    "radvlm.evaluation.llm.execution.eager": "true on the CPU, false on GPUs",
    "vlm.tuning.tiny.betas": "[0.9, 0.999]",
    "vlm.tuning.onevision_tiny.betas": "[0.9, 0.999]",
    "vlm.tuning.qwen25vl.betas": "[0.9, 0.999]",
    "vlm.tuning.qwen3vl.betas": "[0.9, 0.999]",
    "vlm.tuning.gemma3.betas": "[0.9, 0.999]",
    "vlm.tuning.onevision.betas": "[0.9, 0.999]",
    "vlm.tuning.onevision_tiny.seg_loss": "text 1, bce 5, dice 1",
    "vlm.tuning.onevision.seg_loss": "text 1, bce 5, dice 1",
    "vlm.answers.eager": "true on the CPU, false on GPUs",
    "tables.truth_min_px": "64",
    "ablation.interval": "0.95",
    "page.side": "384",
    "page.boxes": "8",
    "agreement.anomaly_steps": "[0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3]",
    "agreement.confidence_steps": "[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7]",
    "agreement.interval": "0.95",
    "release.pairs_per_file": "20000",
    "release.images_per_file": "1000",
    "review.interval": "0.95",
    "training.lite.betas": "[0.9, 0.95]",
    "training.lite.weight_decay": "0.0",
    "training.lite.clip": "1.0",
    "training.lite.loss": "{text: 0.5, bce: 5.0, dice: 1.0}",
    "training.lite.dice_on": "positives",
    "training.rosalia.betas": "[0.9, 0.95]",
    "training.rosalia.weight_decay": "0.0",
    "training.rosalia.clip": "1.0",
    "training.rosalia.loss": "{text: 0.5, bce: 5.0, dice: 1.0}",
    "training.rosalia.dice_on": "positives",
    "medground.sources.same_picture": "0.95",
    "medground.regions.connectivity": "8",
    "medground.regions.min_px_ils": "64",
    "medground.regions.max_boxes": "60",
    "medground.regions.open_share": "0.01",
    "medground.logic.tiny": "0.005",
    "medground.logic.small": "0.03",
    "medground.logic.medium": "0.15",
    "medground.logic.size_margin": "0.15",
    "medground.logic.relative_from": "4",
    "medground.logic.round": "0.25",
    "medground.logic.elongated": "0.5",
    "medground.logic.oval_solidity": "0.9",
    "medground.logic.irregular": "0.8",
    "medground.logic.shape_margin": "0.05",
    "medground.logic.shape_min_px": "64",
    "medground.logic.position_margin": "0.05",
    "medground.logic.zone_yes": "0.5",
    "medground.logic.zone_no": "0.3",
    "medground.logic.area_gap": "0.2",
    "medground.logic.position_gap": "0.03",
    "medground.logic.farthest_nth": "3",
    "medground.logic.relation_gap": "0.05",
    "medground.logic.nearest_gap": "0.2",
    "medground.logic.contrast_yes": "0.8",
    "medground.logic.contrast_no": "0.3",
    "medground.logic.texture_rough": "1.3",
    "medground.logic.texture_even": "0.77",
    "medground.queries.kinds.single": "0.6",
    "medground.queries.kinds.subset": "0.25",
    "medground.queries.kinds.all": "0.15",
    "medground.queries.max_atoms": "4",
    "medground.queries.budget": "20000",
    "medground.queries.spread": "2.5",
    "medground.verification.rules.contrast": "0.8",
    "medground.verification.rules.blob_iou": "0.5",
    "medground.verification.rules.enlarge": "0.25",
    "medground.verification.rules.stain": "hematoxylin",
    "medground.verification.rules.zone_no": "0.1",
    "medground.verification.rules.least_lung": "0.1",
    "medground.verification.rules.anomaly_level": "26",
    "medground.verification.rules.anomaly_yes": "0.1",
    "medground.verification.rules.anomaly_no": "-0.1",
    "medground.verification.rules.slack": "2.0",
    "medground.verification.llm.select_from": "20",
    "medground.dataset.pair_overlap": "0.1",
    "medground.dataset.pairs_per_image": "3",
    "medground.dataset.gallery": "3",
    "medground.dataset.resized.merge": "2",
    "medground.dataset.resized.min_pixels": "3136",
    "medground.scoring.taus": "[0.3, 0.5, 0.7]",
    "medground.scoring.interval": "0.95",
    "semisyn.placement.tries": "6",
    "semisyn.placement.ctr_step": "0.03",
    "semisyn.detection.wilcoxon": "[100, 1000]",
    "semisyn.editing.visible": "4.0",
    "semisyn.editing.grid.base": "roentgen_after",
    "semisyn.editing.lite": "that of resources/semisyn/painters.yaml",
    "semisyn.editing.radedit.invert_guidance": "3.5",
    "semisyn.editing.radedit.strength": "0.7 (a configuration's strength replaces it)",
    "semisyn.editing.diffusion.strength": "1.0 (a configuration's strength replaces it)",
    "semisyn.detectors.lite.widths": "[16, 32, 56, 96, 128]",
    "semisyn.detectors.lite.warmup": "0.15",
    "semisyn.detectors.lite.decay": "0.01",
    "semisyn.detectors.lite.clip": "5.0",
    "semisyn.detectors.lite.memory": "0.98",
    "semisyn.detectors.lite.bfloat16": "true",
    "semisyn.priors.alpha": "0.05",
    "semisyn.priors.bins": "50",
    "semisyn.priors.families": "all ten",
    "semisyn.priors.far": "50.0",
    "semisyn.priors.overshoot_percentile": "2.5",
    "semisyn.priors.zones_percentiles": "[5.0, 95.0]",
    "semisyn.priors.zones_patients": "20",
    "semisyn.placement.min_mass": "1e-9",
    "semisyn.placement.heart_exclusion": "true",
    "semisyn.detection.ious": "0.1 to 0.7",
    "semisyn.detection.points": "101",
    "semisyn.detection.interval": "0.95",
    "semisyn.realism.ious": "0.1 to 0.7",
    "semisyn.realism.points": "101",
    "semisyn.realism.interval": "0.95",
    "semisyn.realism.c2st_replicates": "20",
    "semisyn.readers.interval": "0.95",
    "semisyn.selection.interval": "0.95",
    "semisyn.prompts.least_phrases": "3",
    "semisyn.prompts.most": "40",
    "semisyn.healthy.max_lung_iou": "0.3",
    "semisyn.editing.grid.prompt": "phrase, label",
    "semisyn.editing.grid.blur": "all seven",
    "semisyn.editing.grid.extent": "1.0 to 0.85",
    "semisyn.editing.grid.steps": "1.0, 1.33, 2.0",
    "semisyn.editing.grid.guidance": "that of Appendix E",
    "semisyn.editing.grid.strength": "0.0, 0.9, 1.0",
    "semisyn.editing.grid.negative": "none, and one",
}
"""{key that is a constant now: its value}."""
OLD = "release"
"""Old name of :data:`MIMIC_ILS`, of that dataset and of the format that it is in."""
NAMING = {
    "training.runs.*.thresholds": "set",
    "training.runs.*.test": "set",
    "evaluation.predictions.*.test": "set",
    "agreement.references.*.format": "format",
}
"""{key: what its value names}: a threshold set or that dataset, or a format of annotations."""


def moved(config: object) -> list[str]:
    """Return one sentence for each renamed or removed setting in ``config``, in the order of the tables."""
    keys = [f"{old} is now {new}: rename it." for old, new in MOVED.items() if list(_values(config, old.split(".")))]
    keys += [
        f"{old} is no longer a setting, its value is always {value}: remove it."
        for old, value in REMOVED.items()
        if list(_values(config, old.split(".")))
    ]
    values = [
        f"{name} is {value!r}, a {kind} that is now called {MIMIC_ILS!r}: rename it."
        for pattern, kind in NAMING.items()
        for name, value in _values(config, pattern.split("."))
        if value == OLD or (kind == "format" and str(value).lower() == OLD)  # a set may be called Release
    ]
    return keys + values


def _values(config: object, parts: list[str], above: str = "") -> Iterator[tuple[str, object]]:
    """Yield (key, value) of each setting at the path ``parts``, where ``*`` matches any name."""
    if not parts:
        yield above, config
    elif isinstance(config, dict):
        for name in config if parts[0] == "*" else {parts[0]} & config.keys():
            yield from _values(config[name], parts[1:], f"{above}.{name}" if above else str(name))
