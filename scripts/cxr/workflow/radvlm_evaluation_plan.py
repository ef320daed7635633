"""The plan's part on RadVLM's evaluation: whose answers are scored, by which judge, and their files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cxr.base.errors import UserError, existing_file
from cxr.radvlm.evaluation.other_models import load_adapters
from cxr.workflow.engine_files import declared
from cxr.workflow.params import model_options
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import Settings
from cxr.workflow.settings.radvlm.sources import OWN

ROOT = "results/radvlm/evaluation"
INSTRUCTIONS = "results/radvlm/instructions"
TEST, EXCHANGED = "radvlm_test", "radvlm_exchanged"
"""Names of the sets of vlm.answers that are scored."""
FACTS = "facts"
SCORED = (
    "iou", "strict_iou", "coco_ious", "label_match", "synonyms", "report_metrics", "reference", "failed", "replicates",
    "interval",
)  # fmt: skip
"""Keys that the scores depend on."""


@dataclass(frozen=True)
class Annotating:
    """How a model annotates reports: the files that it reads besides, and those of its folder, the options of its jobs,
    the ending of its environment's name, and the GPUs of a language model that is loaded in the job.
    """

    files: Mapping[str, str]
    placed: Sequence[str]
    options: Mapping
    environment: str
    gpus: int


@dataclass(frozen=True)
class EvaluationPlan:
    """runs: of vlm.tuning that are scored; tuned: those of them that are tuned here; mixes: those that are tested or
    tuned on; tasks: {run: those that it is tuned on, none for all}; models: {other model: its keys}; lines: of the test
    set, those that are asked; whole: all of them; exchanged: those of the same samples about other pictures, if they
    are asked; draw, exchanged_drawn: how many of how many are asked, where not all are;
    scoring, judging: options; judge: its name; gpus: of a judge that is loaded in the job; annotations: {run or model:
    its file}; annotators: {name: how it is run}; texts: reports of the sources, if they are compared with.
    """

    runs: Sequence[str]
    tuned: Sequence[str]
    mixes: Sequence[str]
    tasks: Mapping[str, Sequence[str]]
    models: Mapping[str, dict]
    lines: str
    whole: str
    exchanged: Sequence[str]
    draw: Sequence[str]
    exchanged_drawn: Sequence[str]
    scoring: Mapping
    judging: Mapping
    judge: str
    gpus: int
    annotations: Mapping[str, str]
    annotators: Mapping[str, Annotating]
    texts: Sequence[str]
    beyond: bool
    dpi: int
    gallery: Mapping

    @property
    def train(self) -> str:
        """The training lines of the mix that is tested: what blind answers are made of."""
        return str(Path(self.whole).with_name("train.jsonl"))

    def answers(self, name: str) -> str:
        """Return the answers of a run or of another model to the test lines."""
        return f"{ROOT}/{name}/answers.jsonl" if name in self.models else f"results/vlm/{name}/answers/{TEST}.jsonl"

    def to_exchanged(self, name: str) -> list[str]:
        """Return the answers of a run about other pictures; other models are not asked for them."""
        is_asked = self.exchanged and name not in self.models
        return [f"results/vlm/{name}/answers/{EXCHANGED}.jsonl"] if is_asked else []

    def lines_exchanged(self, name: str) -> list[str]:
        """Return the lines about other pictures, where the run is asked them."""
        return list(self.exchanged) if self.to_exchanged(name) else []

    def draw_exchanged(self, name: str) -> list[str]:
        """Return how many of how many lines about other pictures are asked, where a run is asked some of them."""
        return list(self.exchanged_drawn) if self.to_exchanged(name) else []

    def notes(self, name: str) -> list[str]:
        """Return the files of annotations of a run's or model's reports; the user's is the last."""
        paths = [f"{ROOT}/{name}/annotations/{annotator}.jsonl" for annotator in self.annotators]
        return [*paths, *([self.annotations[name]] if name in self.annotations else [])]

    def of_scores(self, name: str) -> dict:
        """Return the options of scoring a run or model."""
        if name not in self.models:
            tasks = self.tasks[name]
        else:
            tasks = () if self.beyond else load_adapters()[self.models[name]["adapter"]].tasks
        return dict(self.scoring) | {"tasks": list(tasks)}

    def of_model(self, name: str) -> dict:
        """Return the options of reading another model's outputs."""
        keys = self.models[name]
        return {"model": name, "adapter": keys["adapter"], "boxes": keys["boxes"], "beyond": self.beyond}

    @property
    def comparison(self) -> dict:
        """Options of the tables of all runs and models."""
        return {
            "runs": list(self.runs), "models": list(self.models), "iou": self.scoring["iou"],
            "adapters": {name: keys["adapter"] for name, keys in self.models.items()},
        }  # fmt: skip

    def files(self, names: Sequence[str], file: str) -> list[str]:
        """Return a file of each run or model."""
        return [f"{ROOT}/{name}/{file}" for name in names]


def evaluation_plan(settings: Settings, vlm: VlmPlan) -> EvaluationPlan:
    """Return the plan. Raises UserError for a run that is not there, or a missing file.

    Without a set of questions no run is scored: the lines are then those of the first mix.
    """
    evaluation, sources = settings.radvlm.evaluation, settings.radvlm.sources.use
    plain = evaluation.as_dict()
    runs = evaluation.runs if TEST in vlm.sets else []
    default = f"{INSTRUCTIONS}/{next(iter(settings.radvlm.instructions.mixes))}/test.jsonl"
    all_lines = vlm.whole.get(TEST, default)
    for name in runs:
        if name not in vlm.runs:
            run_names = ", ".join(vlm.runs) or "none"
            raise UserError(
                f"radvlm.evaluation.runs names {name!r}, but the runs of vlm.tuning are {run_names}: name one"
            )
    for name, prediction in evaluation.predictions.items():
        existing_file(f"radvlm.evaluation.predictions.{name}.path", prediction.path)
    for name, path in evaluation.annotations.items():
        existing_file(f"radvlm.evaluation.annotations.{name}", path)
    judging = {"judge": evaluation.judge, "iou": evaluation.iou, "most": evaluation.checked, "own": {}}
    if evaluation.judge != FACTS:
        judging["own"] = model_options("radvlm.evaluation.llm", plain["llm"], settings.seed)
    offline = evaluation.judge != FACTS and evaluation.llm.transport == "offline"
    return EvaluationPlan(
        runs=runs,
        tuned=[name for name in runs if name in vlm.trained],
        mixes=_mixes(settings.radvlm.instructions.mixes, all_lines, [vlm.runs[name]["mix"] for name in runs]),
        tasks={name: vlm.runs[name]["options"].get("tasks", ()) for name in runs},
        models=plain["predictions"],
        lines=vlm.sets.get(TEST, default),
        whole=all_lines,
        exchanged=[vlm.sets[EXCHANGED]] if EXCHANGED in vlm.sets else [],
        draw=vlm.draw(TEST, "tsv"),
        exchanged_drawn=vlm.draw(EXCHANGED, "tsv"),
        scoring={name: plain[name] for name in SCORED} | {"seed": settings.seed},
        judging=judging,
        judge=evaluation.judge,
        gpus=evaluation.llm.execution.gpus if offline else 0,
        annotations=evaluation.annotations,
        annotators={name: _annotating(name, plain, settings) for name in evaluation.annotators},
        texts=[]
        if evaluation.reference == "filtered"
        else [f"results/radvlm/sources/{source}/texts.jsonl" for source in sources],
        beyond=evaluation.beyond,
        dpi=settings.figures.dpi,
        gallery={
            "run": runs[0] if runs else "",
            "quality": settings.figures.quality,
            "seed": settings.seed,
            "withheld": "report_text" in settings.release.withhold
            and not (settings.cohort.source == "embedded" and list(sources) == [OWN]),  # whose texts are drawn
        },
    )


def _mixes(mixes: Sequence[str], lines: str, tuned: Sequence[str]) -> list[str]:
    """Return the mixes that the test ``lines`` are of, or that runs are tuned on, in the order of the settings."""
    return [mix for mix in mixes if mix in tuned or Path(lines).parent == Path(INSTRUCTIONS, mix)]


def _annotating(name: str, plain: Mapping, settings: Settings) -> Annotating:
    """Return how an annotator is run; its section is of the evaluation, or of RadVLM where other stages use it too."""
    annotator_settings = plain[name] if name in plain else settings.radvlm.chexbert.as_dict()
    read_constant = partial(declared, "cxr.radvlm.evaluation", f"annotate_{name}")
    key = f"radvlm.evaluation.{name}"
    places = {
        file_key: str(existing_file(f"{key}.{file_key}", annotator_settings[file_key]))
        for file_key in read_constant("FILES", ())
    }
    placed = [
        str(existing_file(f"{key}.model", str(Path(annotator_settings["model"]) / file_name)))
        for file_name in read_constant("PLACED", ())
    ]
    model_name = annotator_settings["model"].rstrip("/").rpartition("/")[2]
    engine = f"{name} {model_name} {annotator_settings.get('revision', '')}".strip()
    gpus, annotator_options = 0, annotator_settings
    if read_constant("LLM", False):
        gpus = plain["llm"]["execution"]["gpus"] if annotator_settings["transport"] == "offline" else 0
        llm = model_options(key, annotator_settings, settings.seed)
        annotator_options = {"llm": llm, "prompt_bytes": annotator_settings["prompt_bytes"]}
    options = {"annotator": name, "own": annotator_options, "engine": engine, "reference": plain["reference"]}
    return Annotating(read_constant("INPUTS", {}) | places, placed, options, read_constant("ENVIRONMENT", name), gpus)
