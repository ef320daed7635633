"""The vision-language part of the plan of a run: the models and their tuning, and the questions that they are asked."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from cxr.base.errors import UserError, existing_file
from cxr.radvlm.samples import TASKS
from cxr.vlm.settings import Vlm
from cxr.vlm.tuning.settings import TINY, Recipe, Run
from cxr.workflow.engine_files import read_declaration

MEDGROUND, RADVLM = "medground:", "radvlm:"
DATASET_FOLDERS = {MEDGROUND: "results/medground/dataset", RADVLM: "results/radvlm/instructions"}
"""{prefix of the setting ``lines``: folder of the system's JSONL files}."""
BASE, BASE_WITH_HEAD = "base", "base_masks"
"""Values of ``init`` for a tiny model that starts from this repository's base model, without or with a mask head."""
DRAW_SHARED_WITH = {"radvlm_exchanged": "radvlm_test"}
"""{set of samples with exchanged images: original set, of which the same samples are asked}."""
APART = ("model", "tiles", "grid", "system_prompt", "seg_start", "seg_learning_rate")
"""Settings of an engine that a run's option ``recipe``, the settings of its training, leaves out."""
MIX_FILES = ("train", "validate", "test", "exchanged")
"""Names of the JSONL files of a RadVLM mix."""


class VlmPlan:
    """Runs, sets of questions and files for the rules of vision-language models, from the settings.

    A run is a tuned or published model of ``vlm.tuning.runs``. Other models are those of ``vlm.answers.predictions``,
    whose answers the user provides.
    """

    def __init__(
        self, settings: Vlm, device: str, gpus: int, mixes: Sequence[str] = (), decoding: Mapping | None = None
    ):
        """Derive the plan from the settings. Raises UserError for a missing file or an unknown mix.

        ``device``, ``gpus``: the settings ``compute.device`` and ``compute.gpus``. ``mixes``: names of RadVLM's mixes.
        ``decoding``: options for decoding image files.
        """
        tuning, answers = settings.tuning, settings.answers
        # {set of questions: the system that makes it, "" for a file of the user}
        self.systems = systems = {name: system_of(lines) for name, lines in answers.sets.items()}
        # {run: its rule's options and files}, see :func:`_plan_run`
        self.runs = runs = {
            name: _plan_run(name, run, settings, mixes, decoding or {}, systems) for name, run in tuning.runs.items()
        }
        # runs that are tuned; runs that are asked as published; runs with and without a segmentation head
        self.trained = [name for name, run in runs.items() if run["trained"]]
        self.untrained = [name for name, run in runs.items() if not run["trained"]]
        self.with_head = [name for name, run in runs.items() if run["options"]["head"]]
        self.without_head = [name for name in runs if name not in self.with_head]
        # modules of the model families of all runs; all modules that tunings import by a name in the settings
        self.families = sorted({f"vlm.families.{run['options']['family']}" for run in runs.values()})
        runners = {runs[name]["options"]["recipe"]["runner"] for name in self.trained}
        heads = {f"segmentation.starts.{runs[name]['options']['head']['start']}" for name in self.with_head}
        self.tuning_modules = [*self.families, *sorted(f"nets.fitting.{name}" for name in runners), *sorted(heads)]
        # conda environment of tunings: with DeepSpeed if a run uses it
        self.environment = "vlm_tuning-deepspeed" if "deepspeed" in runners else "vlm_tuning"
        # {set: JSONL file of all its samples}; sets: {set: JSONL file of the samples that are asked}
        self.all_lines = {
            name: lines_file(f"vlm.answers.sets.{name}", lines, "", mixes) for name, lines in answers.sets.items()
        }
        self.most = answers.most  # maximum number of samples of a task that are asked, 0 for all
        self.drawn_sets = list(self.all_lines) if self.most else []  # sets of which only some samples are asked
        self.sets = {
            name: self.draw_files(name, "jsonl")[0] if self.most else path for name, path in self.all_lines.items()
        }
        # {other model: the file of its answers}
        self.predictions = {
            name: str(existing_file(f"vlm.answers.predictions.{name}.path", prediction.path))
            for name, prediction in answers.predictions.items()
        }
        # {run or other model: sets that it is asked}: sets of the run's system and sets from the user's files; if the
        # run itself is tuned on a user's file, all sets
        self.sets_by_run = {
            name: [at for at, system in systems.items() if not run["system"] or system in ("", run["system"])]
            for name, run in runs.items()
        } | {name: [prediction.set] for name, prediction in answers.predictions.items()}
        # {run: GPUs for asking it}; gpus: {run: GPUs for tuning it}, of which only DeepSpeed uses several
        num_gpus = {name: 0 if run.engine in TINY or device == "cpu" else gpus for name, run in tuning.runs.items()}
        self.answer_gpus = {name: min(1, count) for name, count in num_gpus.items()}
        with_deepspeed = [name for name, run in runs.items() if run["options"]["recipe"]["runner"] == "deepspeed"]
        self.gpus = self.answer_gpus | {name: num_gpus[name] for name in with_deepspeed}
        self.engine = answers.engine
        # {run or other model: options of asking it}
        self.answer_options = {name: run["asking"] for name, run in runs.items()} | {
            name: {"convention": prediction.convention} for name, prediction in answers.predictions.items()
        }

    def draw_files(self, name: str, ending: str) -> list[str]:
        """Return [file about the samples that are drawn from a set], or [] if all samples of the set are asked.
        ``ending``: "jsonl" for the drawn samples, "tsv" for the counts of drawn and of all samples."""
        return [f"results/vlm/sets/{name}.{ending}"] if name in self.drawn_sets else []

    def shared_draw_lines(self, name: str) -> list[str]:
        """Return [JSONL file of the original set] if the set ``name`` asks the same about other images, or []."""
        return [self.all_lines[DRAW_SHARED_WITH[name]]] if DRAW_SHARED_WITH.get(name) in self.all_lines else []

    def asked_runs(self, name: str) -> list[str]:
        """Return the names of the runs and other models that are asked the questions of a set."""
        return [run for run, sets in self.sets_by_run.items() if name in sets]

    def add_set(self, name: str, lines: str, system: str, runs: Sequence[str]) -> None:
        """Add a set that some runs are asked. Raises UserError if the settings already use its name.
        ``lines``: the set's JSONL file. ``system``: the system that makes this file."""
        if name in self.sets:
            raise UserError(f"vlm.answers.sets has the name {name!r}, which the workflow reserves: rename the set")
        self.sets[name], self.systems[name] = lines, system
        self.sets_by_run |= {run: [*self.sets_by_run[run], name] for run in runs}


def system_of(lines: str) -> str:
    """Return the system whose samples the setting ``lines`` names, "" if the setting names a file."""
    return next((prefix[:-1] for prefix in DATASET_FOLDERS if lines.startswith(prefix)), "")


def lines_file(key: str, lines: str, split: str, mixes: Sequence[str] = ()) -> str:
    """Return the path of the JSONL file that the value ``lines`` of the setting ``key`` names.

    ``split``: split to add to the path of a system's dataset, or "". ``mixes``: names of RadVLM's mixes. Raises
    UserError for a missing file, an unknown system or an unknown mix.
    """
    for prefix, folder in DATASET_FOLDERS.items():
        if lines.startswith(prefix):
            name = lines.removeprefix(prefix)
            mix, _, file = name.partition("/")
            if prefix == RADVLM and mix not in mixes:
                raise UserError(
                    f"{key} is {lines!r}, but radvlm.instructions.mixes has {', '.join(mixes)}: name one of them, or "
                    "add the mix there"
                )
            if prefix == RADVLM and file not in ("", *MIX_FILES):
                raise UserError(f"{key} is {lines!r}, but a mix has the files {', '.join(MIX_FILES)}: name one of them")
            name = "" if name == "dataset" else name.removeprefix("dataset/")
            return "/".join(filter(None, (folder, name, split))) + ".jsonl"
    if ":" in lines and not Path(lines).exists():
        raise UserError(
            f"{key} is {lines!r}, which is no file: start it with one of {', '.join(DATASET_FOLDERS)} or name a JSONL "
            "file"
        )
    return str(existing_file(key, lines))


def _head_options(key: str, run: Run, recipe: Recipe, engine: str, init: str) -> dict:
    """Return the options of a run's segmentation head, {} without one.

    ``key``: the setting of the run, for messages. ``recipe``: settings of the run's engine. ``engine``: the setting
    ``vlm.answers.engine``. ``init``: initial weights of a tiny model. Raises UserError if the head is impossible.
    """
    if run.segmentation == "none":
        return {}
    key = f"{key}.segmentation is 'head', but"
    start = getattr(recipe, "seg_start", "")
    if not start:
        raise UserError(
            f"{key} the engine {run.engine} has no head: set engine to onevision or onevision_tiny, or segmentation to "
            "none"
        )
    if system_of(run.lines) != RADVLM[:-1]:
        raise UserError(f"{key} lines is {run.lines!r}, and only a mix of RadVLM has masks: set lines to radvlm:<mix>")
    if start == BASE and init != BASE:
        raise UserError(
            f"{key} init is {init!r}, while seg_start 'base' needs init 'base': set vlm.tuning.{run.engine}.seg_start "
            "to lite"
        )
    if engine == "vllm":
        raise UserError(f"{key} vlm.answers.engine is 'vllm', which gives no masks: set that to transformers")
    return {"start": start, "learning_rate": getattr(recipe, "seg_learning_rate", None)}


def _check_vllm(engine: str, family: str, recipe: Recipe) -> None:
    """Raise UserError for a tuned model that vLLM cannot run, because of its image tiles or its LoRA adapter."""
    tiles, vllm_tiles = getattr(recipe, "tiles", ""), read_declaration("cxr.vlm.families", family, "VLLM_TILES", "")
    if tiles != vllm_tiles:
        raise UserError(
            f"vlm.tuning.{engine}.tiles is {tiles!r}, but vlm.answers.engine 'vllm' always uses {vllm_tiles}: "
            f"set tiles to {vllm_tiles}, or vlm.answers.engine to transformers"
        )
    if recipe.method == "lora" and not read_declaration("cxr.vlm.families", family, "VLLM_ADAPTERS", True):
        raise UserError(
            f"vlm.tuning.{engine}.method is 'lora', but vlm.answers.engine is 'vllm', which cannot load an adapter of "
            f"{family}: set method to full, or vlm.answers.engine to transformers"
        )


def _image_options(key: str, run: Run, side: int, decoding: Mapping, sets: Mapping[str, str]) -> dict:
    """Return {"side": longest side of a run's images in pixels, 0 for any, "original": options to decode image files}.

    "original" is {} if the run uses 512 × 512 frames. ``side``: the engine's setting. ``sets``: {set of samples: its
    system, such as medground}. Raises UserError if the run uses original images whose files are unknown.
    """
    if run.pictures == "frame":
        return {"side": side, "original": {}}
    if system_of(run.lines) != RADVLM[:-1]:
        raise UserError(
            f"{key}.pictures is 'original', but lines is {run.lines!r}, whose original images are not known: set lines "
            "to a mix of RadVLM, radvlm:<mix>, or pictures to frame"
        )
    if loose := [name for name, system in sets.items() if not system]:
        raise UserError(
            f"{key}.pictures is 'original', but the original images of vlm.answers.sets.{loose[0]}, which "
            "the model must also answer, are not known: set pictures to 'frame', or use a file of a mix, "
            "radvlm:<mix>/<file>, as this set"
        )
    return {"side": min(filter(None, (side, run.picture_px)), default=0), "original": dict(decoding)}


def _plan_run(
    name: str, run: Run, settings: Vlm, mixes: Sequence[str], decoding: Mapping, systems: Mapping[str, str]
) -> dict:
    """Return a dict about a run: its options, the files that its rule reads, its system, and options for asking it.

    ``mixes``: RadVLM's mixes. ``decoding``: options to decode image files. ``systems``: {set: its system}. Raises
    UserError for settings that contradict each other.
    """
    key, recipe, answers = f"vlm.tuning.runs.{name}", getattr(settings.tuning, run.engine), settings.answers
    family = recipe.family or run.engine
    init = (run.init or BASE) if run.engine == "onevision_tiny" else ""
    head = _head_options(key, run, recipe, answers.engine, init)
    if head.get("start") == BASE:
        init = BASE_WITH_HEAD
    if run.trained and answers.engine == "vllm":
        _check_vllm(run.engine, family, recipe)
    if unknown := sorted(set(run.tasks) - set(TASKS)):
        raise UserError(f"{key}.tasks has {unknown[0]!r}, which is not a task: choose from {', '.join(TASKS)}")
    is_folder = bool(run.model) and Path(run.model).is_dir()
    options = {
        "engine": "tiny" if run.engine in TINY else run.engine,
        "family": family,
        "convention": run.convention or read_declaration("cxr.vlm.families", family, "CONVENTION", ""),
        "seed": settings.tuning.seed,
        "recipe": recipe.as_dict(without=APART) | {"updates": run.updates or recipe.updates},
        "balance": settings.tuning.balance,
        "head": head,
        "system_prompt": getattr(recipe, "system_prompt", ""),
        "model": "" if is_folder else run.model,
        "revision": run.revision,
        **_image_options(key, run, recipe.side, decoding, systems),
    }
    if run.trained and hasattr(recipe, "tiles"):
        options["tiling"] = {"tiles": recipe.tiles, "grid": recipe.grid}
    options |= {"init": init} if init else {}
    options |= {"tasks": [task for task in TASKS if task in run.tasks]} if run.tasks else {}
    sam = read_declaration("cxr.segmentation.starts", head["start"], "INPUT", "") if head else ""
    return {
        "options": options,
        "train": lines_file(f"{key}.lines", run.lines, "train", mixes),
        "validate": lines_file(f"{key}.lines", run.lines, "validate", mixes),
        "base": [run.model] if is_folder else [],
        "sam": [sam] if sam else [],
        "trained": run.trained,
        "system": system_of(run.lines),
        "mix": run.lines.removeprefix(RADVLM).partition("/")[0] if run.lines.startswith(RADVLM) else "",
        "asking": {
            "engine": answers.engine, "convention": "", "history": answers.history, "max_length": answers.max_length,
            "max_new_tokens": min(recipe.max_new_tokens or math.inf, answers.max_new_tokens),
            **{name: options[name] for name in ("seed", "model", "revision")}, "dtype": recipe.dtype,
        },
    }  # fmt: skip


def read_request(config: Mapping, vlm: VlmPlan) -> dict:
    """Return the request of `snakemake vlm_ask --config` as a dict.

    image: path of the image. questions: list of texts. run: name of the run, by default the first of RadVLM or else
    the first of all; "" for a name that ``vlm`` does not have. referring: whether the run is tuned on MedGround and
    therefore answers only one question.
    """
    radvlm_runs = [name for name, run in vlm.runs.items() if run["system"] == RADVLM[:-1]]
    run = str(config.get("run") or next(iter([*radvlm_runs, *vlm.runs]), ""))
    questions = config.get("questions", [])
    return {
        "image": str(config.get("image", "")),
        "questions": [questions] if isinstance(questions, str) else list(questions),
        "run": run if run in vlm.runs else "",
        "referring": run in vlm.runs and vlm.runs[run]["system"] == MEDGROUND[:-1],
    }
