"""The part of the plan on vision-language models: runs, sets of questions, and the files of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cxr.base.errors import UserError, existing_file
from cxr.workflow.engine_files import declared
from cxr.workflow.settings.vlm import Vlm

ROOT = "results/vlm"
MEDGROUND = "medground:"
SYSTEMS = {MEDGROUND: "results/medground/dataset"}
"""{prefix of lines: folder of the system's}."""


@dataclass(frozen=True)
class VlmPlan:
    """runs: {run: its rule's options and files}; trained, untrained, predictions: their names; sets: {set: lines};
    asked: {run or prediction: its sets}; gpus: of each run's tuning, and of asking it; answers: options of asking.
    """

    runs: Mapping[str, dict]
    trained: Sequence[str]
    untrained: Sequence[str]
    predictions: Mapping[str, dict]
    sets: Mapping[str, str]
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

    def modules(self, of: str) -> list[str]:
        """Return the modules of all runs that a name in the settings chooses: families or runners."""
        options = [run["options"] for run in self.runs.values()]
        if of == "families":
            return sorted({f"vlm.families.{one['family']}" for one in options})
        return sorted({f"nets.fitting.{self.runs[name]['options']['own']['runner']}" for name in self.trained})

    def scored(self, name: str) -> list[str]:
        """Return the runs and predictions that were asked a set."""
        return [run for run, sets in self.asked.items() if name in sets]


def lines_of(key: str, given: str, split: str) -> str:
    """Return the file of lines that a setting names. Raises UserError for a missing file or an unknown system."""
    for prefix, folder in SYSTEMS.items():
        if given.startswith(prefix):
            name = given.removeprefix(prefix)
            name = "" if name == "dataset" else name.removeprefix("dataset/")
            return "/".join(filter(None, (folder, name, split))) + ".jsonl"
    if ":" in given and not Path(given).exists():
        raise UserError(f"{key} is {given!r}: name one of {', '.join(f'{one}…' for one in SYSTEMS)} or a file of lines")
    return str(existing_file(key, given))


def vlm_plan(settings: Vlm, device: str, gpus: int) -> VlmPlan:
    """Return the plan; ``device``, ``gpus``: of the section compute. Raises UserError for a file that is missing."""
    plain = settings.model_dump(mode="json")
    tuning, answers = plain["tuning"], plain["answers"]
    runs, counts, asking = {}, {}, {}
    for name, run in tuning["runs"].items():
        key = f"vlm.tuning.runs.{name}"
        own = dict(tuning[run["engine"]])
        family, side = own.pop("family", run["engine"]), own.pop("side", 0)
        convention = run["convention"] or declared("cxr.vlm.families", family, "CONVENTION", "")
        options = {
            "engine": run["engine"], "family": family, "convention": convention, "side": side,
            "wording": run["wording"], "nan_limit": tuning["nan_limit"], "seed": tuning["seed"], "own": own,
            "balance": tuning["balance"],
            "model": "" if Path(run["model"]).is_dir() else run["model"], "revision": run["revision"],
        }  # fmt: skip
        runs[name] = {
            "options": options | ({} if run["trained"] else {"probed": tuning["probed"]}),
            "train": lines_of(f"{key}.lines", run["lines"], "train"),
            "validate": lines_of(f"{key}.lines", run["lines"], "validate"),
            "base": [run["model"]] if run["model"] and Path(run["model"]).is_dir() else [],
            "wording": [str(existing_file(f"{key}.wording", run["wording"]))] if run["wording"] else [],
            "trained": run["trained"],
            "system": next((prefix[:-1] for prefix in SYSTEMS if run["lines"].startswith(prefix)), ""),
            "dtype": own["dtype"],
        }
        here = 0 if run["engine"] == "tiny" or device == "cpu" else gpus
        counts[name] = here if own["runner"] == "deepspeed" else min(1, here)
        asking[name] = min(1, here)
    sets = {name: lines_of(f"vlm.answers.sets.{name}", given, "") for name, given in answers["sets"].items()}
    found = {
        name: {"path": str(existing_file(f"vlm.answers.predictions.{name}.path", one["path"])), **one}
        for name, one in answers["predictions"].items()
    }
    own = {name: answers[name] for name in ("max_new_tokens", "max_length", "history")}
    asked_options = {
        name: own
        | {
            "engine": answers["engine"], "convention": "", "dtype": run["dtype"], "seed": tuning["seed"],
            "model": run["options"]["model"], "revision": run["options"]["revision"],
            "own": {"eager": answers["eager"], "rank": run["options"]["own"]["lora"]["rank"]},
        }
        for name, run in runs.items()
    }  # fmt: skip
    asked_options |= {
        name: own
        | {
            "engine": "table", "convention": one["convention"], "dtype": "float32", "seed": tuning["seed"],
            "model": "", "revision": "", "own": {},
        }
        for name, one in found.items()
    }  # fmt: skip
    return VlmPlan(
        runs=runs,
        trained=[name for name, run in runs.items() if run["trained"]],
        untrained=[name for name, run in runs.items() if not run["trained"]],
        predictions=found,
        sets=sets,
        asked={name: list(sets) for name in runs} | {name: [one["set"]] for name, one in found.items()},
        gpus=counts,
        asking=asking,
        engine=answers["engine"],
        answers=asked_options,
    )
