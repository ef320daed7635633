"""The part of the plan on vision-language models: runs, sets of questions, and the files of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cxr.base.errors import UserError, existing_file
from cxr.radvlm.samples import TASKS
from cxr.workflow.engine_files import declared
from cxr.workflow.settings.vlm import TINY, Vlm

ROOT = "results/vlm"
MEDGROUND, RADVLM = "medground:", "radvlm:"
SYSTEMS = {MEDGROUND: "results/medground/dataset", RADVLM: "results/radvlm/instructions"}
"""{prefix of lines: folder of the system's}."""
BASE, WITH_MASKS = "base", "base_masks"
"""What a small model and its head start from, and what it does where its head starts from it too."""
AMONG = {"radvlm_exchanged": "radvlm_test"}
"""{set: another of the same samples, about their own pictures, whose draw it shares}."""
FILES = ("train", "validate", "test", "exchanged")
"""Files of lines of RadVLM's mixes."""


@dataclass(frozen=True)
class VlmPlan:
    """runs: {run: its rule's options and files}; trained, untrained, predictions: their names; sets: {set: lines
    that are asked}; whole: {set of the settings: all its lines}; most: samples of a task that are asked, 0 for all;
    systems: {set: its system, "" of a file}; segmented: runs with a head of masks; asked: {run or prediction: its
    sets}; gpus: of each run's tuning, and of asking it; answers: options of asking.
    """

    runs: Mapping[str, dict]
    trained: Sequence[str]
    untrained: Sequence[str]
    predictions: Mapping[str, dict]
    sets: Mapping[str, str]
    whole: Mapping[str, str]
    most: int
    systems: Mapping[str, str]
    segmented: Sequence[str]
    asked: Mapping[str, Sequence[str]]
    gpus: Mapping[str, int]
    asking: Mapping[str, int]
    engine: str
    answers: Mapping[str, dict]

    @property
    def environment(self) -> str:
        """Return the environment of tunings: one that has DeepSpeed where a run is tuned by it."""
        runners = {self.runs[name]["options"]["own"]["runner"] for name in self.trained}
        return "vlm_tuning-deepspeed" if "deepspeed" in runners else "vlm_tuning"

    @property
    def unmasked(self) -> list[str]:
        """Return the runs that answer without masks."""
        return [name for name in self.runs if name not in self.segmented]

    def modules(self, kind: str) -> list[str]:
        """Return the modules of all runs that a name in the settings chooses: families, runners, starts or heads."""
        options = [run["options"] for run in self.runs.values()]
        if kind == "starts":
            return sorted({f"vlm.starts.{run_options['init']}" for run_options in options if "init" in run_options})
        if kind == "heads":
            return sorted(
                {
                    f"segmentation.starts.{run_options['head']['start']}"
                    for run_options in options
                    if run_options["head"]
                }
            )
        if kind == "families":
            return sorted({f"vlm.families.{run_options['family']}" for run_options in options})
        return sorted({f"nets.fitting.{self.runs[name]['options']['own']['runner']}" for name in self.trained})

    def answered(self, system: str) -> list[str]:
        """Return the answers of a system's runs to the sets that they are asked."""
        run_names = [name for name, run in self.runs.items() if run["system"] == system]
        return [f"{ROOT}/{run}/answers/{name}.jsonl" for run in run_names for name in self.asked[run]]

    @property
    def drawn(self) -> list[str]:
        """Return the sets of which some samples are asked."""
        return list(self.whole) if self.most else []

    def draw(self, name: str, ending: str) -> list[str]:
        """Return what tells of a set's draw: jsonl, the lines that are asked, tsv, how many of how many."""
        return [f"{ROOT}/sets/{name}.{ending}"] if name in self.drawn else []

    def among(self, name: str) -> list[str]:
        """Return the lines of the set whose draw a set shares, where there is one."""
        return [self.whole[AMONG[name]]] if AMONG.get(name) in self.whole else []

    def scored(self, name: str) -> list[str]:
        """Return the runs and predictions that were asked a set."""
        return [run for run, sets in self.asked.items() if name in sets]


def _check_mix(key: str, lines: str, mixes: Sequence[str]) -> None:
    mix, _, file = lines.removeprefix(RADVLM).partition("/")
    if mix not in mixes:
        raise UserError(
            f"{key} is {lines!r}, but radvlm.instructions.mixes has {', '.join(mixes)}: name one, or add it there"
        )
    if file not in ("", *FILES):
        raise UserError(f"{key} is {lines!r}, but a mix has {', '.join(FILES)}: name one of them")


def system_of(lines: str) -> str:
    """Return the system whose lines a setting names; "" of a file."""
    return next((prefix[:-1] for prefix in SYSTEMS if lines.startswith(prefix)), "")


def lines_of(key: str, lines: str, split: str, mixes: Sequence[str] = ()) -> str:
    """Return the file of lines that a setting names. ``mixes``: those of RadVLM.

    Raises UserError for a missing file, an unknown system, or an unknown mix.
    """
    for prefix, folder in SYSTEMS.items():
        if lines.startswith(prefix):
            if prefix == RADVLM:
                _check_mix(key, lines, mixes)
            name = lines.removeprefix(prefix)
            name = "" if name == "dataset" else name.removeprefix("dataset/")
            return "/".join(filter(None, (folder, name, split))) + ".jsonl"
    if ":" in lines and not Path(lines).exists():
        raise UserError(
            f"{key} is {lines!r}: name one of {', '.join(f'{system}…' for system in SYSTEMS)} or a file of lines"
        )
    return str(existing_file(key, lines))


def _head(key: str, run: Mapping, recipe: dict, engine: str, init: str) -> dict:
    """Return the options of a run's head of masks, which are taken out of its recipe; {} without one.

    Raises UserError for a head that cannot be learned or asked. ``engine``: of vlm.answers; ``init``: what the model
    starts from.
    """
    head = {name: recipe.pop(f"seg_{name}", None) for name in ("start", "loss", "learning_rate")}
    if run["segmentation"] == "none":
        return {}
    key = f"{key}.segmentation is 'head', but"
    if head["start"] is None:
        raise UserError(
            f"{key} the engine {run['engine']} has none: take onevision or onevision_tiny, or set it to none"
        )
    if system_of(run["lines"]) != RADVLM[:-1]:
        raise UserError(f"{key} lines is {run['lines']!r}, and only a mix of RadVLM has masks: name one, radvlm:<mix>")
    if head["start"] == BASE and init != BASE:
        raise UserError(
            f"{key} init is {init!r}, and seg_start 'base' is the head of the base: set "
            f"vlm.tuning.{run['engine']}.seg_start to lite"
        )
    if engine == "vllm":
        raise UserError(f"{key} vlm.answers.engine is 'vllm', which gives no masks: set that to transformers")
    return head


def _system_prompt(engine: str, family: str, recipe: dict) -> str:
    """Return a run's system prompt, which is taken out of its recipe. Raises UserError for a chat without one."""
    prompt = recipe.pop("system_prompt", "")
    if prompt and not declared("cxr.vlm.families", family, "SYSTEM", ""):
        raise UserError(
            f"vlm.tuning.{engine}.system_prompt is {prompt!r}, but it is for the chat of onevision, and family is "
            f"{family!r}: set system_prompt to '', or family to onevision"
        )
    return prompt


def _tiling(run: Mapping, family: str, recipe: dict) -> dict:
    """Return how a tuned run cuts pictures into tiles, which is taken out of its recipe; {} for as its model does."""
    tiling = {name: recipe.pop(name) for name in ("tiles", "grid") if name in recipe}
    cut = run["trained"] and declared("cxr.vlm.families", family, "VLLM_TILES", "")
    return {"tiling": tiling} if tiling and cut else {}


def _sizes(run: Mapping, family: str, sizes: Mapping) -> dict:
    """Return the sizes of the model that a run draws, where its family takes them from the settings."""
    names = () if run["model"] or run["engine"] not in TINY else declared("cxr.vlm.families", family, "SIZES", ())
    return {"sizes": {name: sizes[name] for name in names}} if names else {}


def _check_vllm(engine: str, family: str, recipe: Mapping, tiling: Mapping) -> None:
    """Raise UserError for a run that is tuned so that vLLM cannot ask it."""
    tiles, vllm_tiles = tiling.get("tiles"), declared("cxr.vlm.families", family, "VLLM_TILES", "")
    if tiles and tiles != vllm_tiles:
        raise UserError(
            f"vlm.tuning.{engine}.tiles is {tiles!r}, but vlm.answers.engine is 'vllm', which takes {vllm_tiles} for "
            "every model: set tiles to that, or vlm.answers.engine to transformers"
        )
    if recipe["method"] == "lora" and not declared("cxr.vlm.families", family, "VLLM_ADAPTERS", True):
        raise UserError(
            f"vlm.tuning.{engine}.method is 'lora', but vlm.answers.engine is 'vllm', which asks no adapter of "
            f"{family}: set method to full, or vlm.answers.engine to transformers"
        )


def _shown(key: str, run: Mapping, side: int, decoding: Mapping, sets: Mapping[str, str]) -> dict:
    """Return the options of what a run's model sees: the longest side, 0 for any, and how originals are decoded.

    Raises UserError for originals of lines or sets (``sets``: their systems) whose images no table of ours names.
    """
    if run["pictures"] == "frame":
        return {"side": side, "original": {}}
    if system_of(run["lines"]) != RADVLM[:-1]:
        raise UserError(
            f"{key}.pictures is 'original', but lines is {run['lines']!r}, whose original images are not known: name a "
            "mix of RadVLM, radvlm:<mix>, or set it to frame"
        )
    if loose := [name for name, system in sets.items() if not system]:
        raise UserError(
            f"{key}.pictures is 'original', but vlm.answers.sets.{loose[0]}, which it is asked too, is a file, whose "
            "original images are not known: name a file of a mix, radvlm:<mix>/<file>, or set it to frame"
        )
    return {"side": min(filter(None, (side, run["picture_px"])), default=0), "original": dict(decoding)}


def vlm_plan(
    settings: Vlm, device: str, gpus: int, mixes: Sequence[str] = (), decoding: Mapping | None = None
) -> VlmPlan:
    """Return the plan; ``device``, ``gpus``: of the section compute; ``mixes``: of RadVLM; ``decoding``: how image
    files are decoded.

    Raises UserError for a file that is missing, or a mix that is unknown.
    """
    plain = settings.as_dict()
    tuning, answers = plain["tuning"], plain["answers"]
    runs, counts, asking = {}, {}, {}
    systems = {name: system_of(lines) for name, lines in answers["sets"].items()}
    for name, run in tuning["runs"].items():
        key = f"vlm.tuning.runs.{name}"
        recipe = dict(tuning[run["engine"]])
        family, side = recipe.pop("family", run["engine"]), recipe.pop("side", 0)
        recipe.pop("model", "")  # the run has it
        recipe.pop("sizes", {})
        recipe["updates"] = run["updates"] or recipe["updates"]
        init = {"init": recipe.pop("init")} | ({"init": run["init"]} if run["init"] else {}) if "init" in recipe else {}
        head = _head(key, run, recipe, answers["engine"], init.get("init", ""))
        if head.get("start") == BASE:
            init = {"init": WITH_MASKS}
        tasks = {"tasks": [task for task in TASKS if task in run["tasks"]]} if run["tasks"] else {}
        longest = recipe.pop("max_new_tokens", answers["max_new_tokens"])
        convention = run["convention"] or declared("cxr.vlm.families", family, "CONVENTION", "")
        options = {
            "engine": "tiny" if run["engine"] in TINY else run["engine"],
            "family": family, "convention": convention,
            "wording": run["wording"], "nan_limit": tuning["nan_limit"], "seed": tuning["seed"], "own": recipe,
            "balance": tuning["balance"], "head": head,
            "system_prompt": _system_prompt(run["engine"], family, recipe),
            "model": "" if Path(run["model"]).is_dir() else run["model"], "revision": run["revision"],
        } | _shown(key, run, side, decoding or {}, systems)  # fmt: skip
        options |= _tiling(run, family, recipe) | _sizes(run, family, tuning["onevision_tiny"]["sizes"])
        if run["trained"] and answers["engine"] == "vllm":
            _check_vllm(run["engine"], family, recipe, options.get("tiling", {}))
        runs[name] = {
            "options": options | init | tasks | ({} if run["trained"] else {"probed": tuning["probed"]}),
            "train": lines_of(f"{key}.lines", run["lines"], "train", mixes),
            "validate": lines_of(f"{key}.lines", run["lines"], "validate", mixes),
            "base": [run["model"]] if run["model"] and Path(run["model"]).is_dir() else [],
            "wording": [str(existing_file(f"{key}.wording", run["wording"]))] if run["wording"] else [],
            "sam": list(filter(None, [declared("cxr.segmentation.starts", head["start"], "INPUT", "")]))
            if head
            else [],
            "trained": run["trained"],
            "system": system_of(run["lines"]),
            "mix": run["lines"].removeprefix(RADVLM).partition("/")[0] if run["lines"].startswith(RADVLM) else "",
            "dtype": recipe["dtype"],
            "longest": longest,
        }
        num_gpus = 0 if run["engine"] in TINY or device == "cpu" else gpus
        counts[name] = num_gpus if recipe["runner"] == "deepspeed" else min(1, num_gpus)
        asking[name] = min(1, num_gpus)
    lines_by_set = {
        name: lines_of(f"vlm.answers.sets.{name}", lines, "", mixes) for name, lines in answers["sets"].items()
    }
    predictions = {
        name: {"path": str(existing_file(f"vlm.answers.predictions.{name}.path", prediction["path"])), **prediction}
        for name, prediction in answers["predictions"].items()
    }
    answer_options = {name: answers[name] for name in ("max_new_tokens", "max_length", "history")}
    asked_options = {
        name: answer_options
        | {
            "engine": answers["engine"], "convention": "", "dtype": run["dtype"], "seed": tuning["seed"],
            "model": run["options"]["model"], "revision": run["options"]["revision"],
            "max_new_tokens": min(run["longest"], answer_options["max_new_tokens"]),
            "own": {"eager": answers["eager"], "rank": run["options"]["own"]["lora"]["rank"]},
        }
        for name, run in runs.items()
    }  # fmt: skip
    asked_options |= {
        name: answer_options
        | {
            "engine": "table", "convention": prediction["convention"], "dtype": "float32", "seed": tuning["seed"],
            "model": "", "revision": "", "own": {},
        }
        for name, prediction in predictions.items()
    }  # fmt: skip
    return VlmPlan(
        runs=runs,
        trained=[name for name, run in runs.items() if run["trained"]],
        untrained=[name for name, run in runs.items() if not run["trained"]],
        predictions=predictions,
        sets={name: f"{ROOT}/sets/{name}.jsonl" for name in lines_by_set} if answers["most"] else lines_by_set,
        whole=lines_by_set,
        most=answers["most"],
        systems=systems,
        segmented=[name for name, run in runs.items() if run["options"]["head"]],
        asked={name: _sets_of(run["system"], systems) for name, run in runs.items()}
        | {name: [prediction["set"]] for name, prediction in predictions.items()},
        gpus=counts,
        asking=asking,
        engine=answers["engine"],
        answers=asked_options,
    )


def also_asked(plan: VlmPlan, name: str, lines: str, system: str, runs: Sequence[str]) -> VlmPlan:
    """Return the plan with a set more, of a system's lines, that some runs are asked. Raises UserError for its name."""
    if name in plan.sets:
        raise UserError(f"vlm.answers.sets has the name {name!r}, which the workflow needs itself: rename it")
    return replace(
        plan,
        sets=dict(plan.sets) | {name: lines},
        systems=dict(plan.systems) | {name: system},
        asked={run: [*sets, name] if run in runs else sets for run, sets in plan.asked.items()},
    )


def asked_image(config: Mapping, vlm: VlmPlan) -> dict:
    """Return the keys of `snakemake vlm_ask --config`: image, questions, run ("" for one that another target asks),
    and whether the run knows one turn alone.

    The default run is RadVLM's first, or the first of all. They are not settings.
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


def _sets_of(system: str, systems: Mapping[str, str]) -> list[str]:
    """Return the sets that a run is asked: those of its system, and those of files; a run on a file is asked all."""
    return [name for name, set_system in systems.items() if not system or set_system in ("", system)]
