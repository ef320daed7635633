"""Settings of RadVLM and its stages."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from cxr.base.resources import load_resource
from cxr.base.settings import AUTHORS, PAPER, Limits, Section, constraint, key, redefine, refuse_equal_names
from cxr.llm.settings import LanguageModel, ModelOverride
from cxr.radvlm.samples import TASKS

COHORT = "own"  # name of the source that is the cohort
RESOURCE_FILES = ("radvlm/formats.yaml",)


class SourceFormat(NamedTuple):
    """The reader of sources of one format, and properties of these sources."""

    reader: str  # <module>.<function> of its reader, in cxr.radvlm.sources
    terms: str  # terms of use of its data
    family: str = ""  # sources of one family share patients; "": it shares patients with no other source
    conversations: Sequence[str] = ()  # kinds of conversations that are made about its images
    is_file: bool = False  # whether the setting path names a file instead of a folder
    on_mimic: bool = False  # whether it annotates the images of a source of format mimic


FORMATS = {name: SourceFormat(**entry) for name, entry in load_resource(RESOURCE_FILES[0]).items()}
"""{format of external sources: how sources of this format are read}."""
Format = Literal[tuple(FORMATS)]  # type: ignore[valid-type]


class FactSource(Section):
    """One external source: a published dataset, or a file of boxes."""

    format: Format = key("mimic", "Format of the source's files.")
    path: str = key("", "Folder of the dataset as published; for the formats nih, rsna and coco, the file of boxes.")
    pictures: str = key(
        "",
        "Folder of the images; empty: `path`. For format mimic, it must contain `files/`. For the formats ms_cxr and "
        "imagenome, give the name of the source of format mimic whose images they annotate.",
    )
    reports: str = key("", "For format mimic, the folder that contains `files/` with the reports; empty: `pictures`.")
    subject: str = key(
        "", "Regular expression for image names. Its first group is the patient id; empty: each image is a new patient."
    )


class FactSources(Section):
    """Sources of images and of facts about them (labels, boxes and phrases): the cohort, and external sources."""

    use: list[str] = key(lambda: [COHORT], "Names of the sources to read. The cohort is named own.", min_length=1)
    list: dict[str, FactSource] = key(dict, "External sources: {name: source}.")
    uncertain: Literal["absent", "present", "left_out"] = key(
        "absent",
        "Value given to labels that the source calls uncertain. left_out: they stay uncertain and are not used.",
        source=PAPER,
    )
    labels: Literal["rules", "table", "chexbert"] = key(
        "rules",
        "Origin of the labels of the cohort (source own). rules, chexbert: its reports, read by rules or by CheXbert; "
        "table: columns of the manifest.",
    )
    weak_hedges: Literal["absent", "present"] = key(
        "absent", 'Value of labels whose finding a report of the cohort calls only "possible", with `labels: rules`.'
    )
    split: Literal["mimic", "published"] = key(
        "mimic",
        "Split of Chest ImaGenome. mimic: the split of MIMIC-CXR; published: the split that Chest ImaGenome publishes, "
        "whose test images are train images of MIMIC-CXR.",
    )

    @constraint
    def _sources_are_known(self) -> None:
        for name in self.list:
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == COHORT:
                remedy = f"use lower-case letters, digits and _, but not {COHORT!r}"
                raise ValueError(f"list has the name {name!r}: {remedy}")
        refuse_equal_names("list", self.list)
        for name in self.use:
            if name not in (sources := [COHORT, *self.list]):
                raise ValueError(
                    f"`use` has {name!r}, but the sources are {', '.join(sources)}: declare {name!r} in `list`"
                )
        if len(set(self.use)) < len(self.use):
            raise ValueError(f"use names {max(self.use, key=self.use.count)!r} twice: name it once")
        for name, source in self.list.items():
            if not source.path:
                raise ValueError(f"list.{name}.path is empty: give the folder or file of the source")
            mimic = [mimic_name for mimic_name, candidate in self.list.items() if candidate.format == "mimic"]
            if FORMATS[source.format].on_mimic and source.pictures not in mimic:
                raise ValueError(
                    f"list.{name}.pictures is {source.pictures!r}, but a source of format {source.format} needs the "
                    f"name of a source of format mimic: {f'give {mimic[0]}' if mimic else 'declare one in list'}"
                )


class FilteredTexts(Section):
    """Removal of statements that need another image, such as "unchanged", from reports and phrases."""

    engine: Literal["rules", "vllm", "both", "none"] = key(
        "rules",
        "Method of editing. rules: patterns; vllm: a language model; both: as vllm, and a table compares it with "
        "rules; none: the texts stay unchanged.",
    )
    phrases: bool = key(True, "If true, phrases that have boxes are also edited; false, as in the paper: only reports.")
    resolved: Literal["drop", "state_absence"] = key(
        "drop", 'What replaces a statement that a finding has resolved. drop: nothing; state_absence: "no <finding>".'
    )


class Conversations(Section):
    """Generation of question-and-answer conversations about one image, with boxes (grounded) or without (standard)."""

    engine: Literal["rules", "vllm"] = key(
        "rules", "Writer of conversations. rules: templates; vllm: a language model."
    )
    test_llm: ModelOverride = key(
        ModelOverride, "Model that replaces `radvlm.llm` for the test split (engine vllm); the paper used GPT-4o."
    )
    per_image: int = key(
        1, "Number of conversations of each kind (standard, grounded) per image.", source=PAPER, ge=1, le=100
    )
    most: int = key(100_000, "Maximum number of train images with a standard (box-free) one.", source=AUTHORS, ge=0)
    check: Literal["strict", "json"] = key(
        "strict",
        "Check of conversations. strict: form, boxes and statements must agree with the facts; json: valid JSON only.",
    )


MixName = Annotated[str, Limits(pattern=r"^[a-z0-9][a-z0-9_]*$")]
Task = Literal[TASKS]  # type: ignore[valid-type]


class Passes(Section):
    """How often a mix uses one task of one source."""

    repeat: int = key(
        1, "Number of passes over train samples, each in new wordings; 0: the task skips this source.", ge=0, le=1000
    )
    most: int | None = key(
        None,
        "Maximum number of train questions, not counting repeats; 0: no limit; null: as in the preset.",
        ge=0,
    )


class Mix(Section):
    """An instruction mix (the samples on which a model is tuned): a preset, and changes to it."""

    preset: Literal["own", "paper", "code", "paper_plus_ils"] = key(
        "own",
        "Starting point. own: all tasks, from the cohort; paper, code: mix of the paper or of its authors' code; "
        "paper_plus_ils: as paper, plus the cohort's ILS questions.",
    )
    tasks: dict[Task, dict[str, Passes]] = key(dict, "Changes to `preset`: {task: {source: {repeat, most: samples}}}.")
    thresholds: str = key(
        "", "Threshold set of the ILS dataset. mimic_ils: the authors' release; empty: the first of `thresholds.build`."
    )


class Llava(Section):
    """The export of a mix for LLaVA's trainers, `results/radvlm/instructions/{mix}/llava`."""

    convention: Literal["unit", "unit_short", "grid1000"] = key(
        "unit", "Form of box coordinates. 30 % is 0.30 (unit), 0.3 (unit_short) or 300 (grid1000).", source=PAPER
    )
    pictures: Literal["frame", "original"] = key(
        "frame", "Images of the export. frame: PNG files of the 512 × 512 frames; original: paths of original files."
    )


class Instructions(Section):
    """The instruction mixes and their export."""

    mixes: dict[MixName, Mix] = key(lambda: {"all": Mix()}, "Instruction mixes by name.", source=PAPER, min_length=1)
    llava: Llava = key(Llava, "The export for LLaVA's trainers.")

    @constraint
    def _names_are_apart(self) -> None:
        refuse_equal_names("mixes", self.mixes)


ModelName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Segmenter = Annotated[str, Limits(pattern=r"^(none|rosalia:[A-Za-z0-9][A-Za-z0-9_.-]*)$")]
Metric = Literal["rouge_l", "bleu", "findings_f1", "bertscore", "radgraph_f1", "green", "chexbert_f1"]

METRICS = {"chexbert": "chexbert_f1", "radgraph": "radgraph_f1"}  # {annotator: metric}, where the two names differ


class Bertscore(Section):
    """The BERT model that BERTScore uses."""

    model: str = key("distilbert/distilbert-base-uncased", "Folder or Hugging Face id of the BERT model.", source=PAPER)
    revision: str = key("", "Hugging Face revision; empty: the downloaded revision.")


class Radgraph(Section):
    """The model RadGraph-XL, whose archive you extract."""

    model: str = key("", "Folder into which you extracted radgraph-xl.tar.gz.")
    encoder: str = key("", "Folder or Hugging Face id of RadGraph's BERT encoder; empty: the id in its config.json.")


class Green(Section):
    """The language model of the report metric GREEN. `radvlm.llm` has its other settings."""

    prompt: str = key("", "Text file with GREEN's prompt, which has `{reference}` and `{answer}` once each.")
    model: str = redefine(LanguageModel, "model", "StanfordAIMI/GREEN-radllama2-7b", source=AUTHORS)
    revision: str = key("", "Hugging Face revision; empty: the downloaded revision.")
    prompt_bytes: int = key(
        6000,
        "Maximum length of a filled-in prompt; a longer one is not sent. Prompt and answer share 4,096 tokens.",
        unit="bytes",
        ge=256,
        le=10**7,
    )


class OtherModel(Section):
    """Outputs of an external model, which you asked the questions of `asked.jsonl`."""

    adapter: Literal["jsonl", "llava_ov", "llava_med", "radialog", "chexagent", "maira2"] = key(
        "jsonl",
        "Adapter of the model. It states the model's tasks, questions and form of boxes; jsonl: for any other model.",
    )
    path: str = key("", "JSON Lines file of outputs. A line is {sample_id, turn, text} or {sample_id, turn, failure}.")
    boxes: Literal["", "unit", "percent", "hundred", "bins", "grid1000", "pixels"] = key(
        "", "Form in which the outputs write boxes, such as unit (fractions) or pixels; empty: the adapter's form."
    )


class Evaluation(Section):
    """Scoring of models beside controls (no image, another patient's image), external models and the paper."""

    runs: list[str] = key(lambda: ["radvlm"], "Runs of vlm.tuning to score: the main model, then the ablations.")
    predictions: dict[ModelName, OtherModel] = key(dict, "External models by name.")
    beyond: bool = key(False, "Whether to score external models also on tasks for which they were not made.")
    label_match: Literal["asserted", "substring"] = key(
        "asserted",
        "Labels that are read from an answer. asserted: the labels that the answer asserts; substring: the labels that "
        "it names, even to deny them (published code).",
    )
    report_metrics: list[Metric] = key(
        lambda: ["rouge_l", "bleu", "findings_f1"],
        "Metrics of reports. bertscore, radgraph_f1, green and chexbert_f1 need `annotators` or `annotations`.",
        min_length=1,
    )
    annotators: list[Literal["bertscore", "chexbert", "green", "radgraph"]] = key(
        list, "Models that annotate the reports, one for each metric (docs/how-to/models.md)."
    )
    bertscore: Bertscore = key(Bertscore, "Settings of the annotator bertscore.")
    green: Green = key(Green, "Settings of the annotator green.")
    radgraph: Radgraph = key(Radgraph, "Settings of the annotator radgraph.")
    annotations: dict[ModelName, str] = key(
        dict, "Files of annotations of reports and references that you made elsewhere, {run or external model: file}."
    )
    reference: Literal["filtered", "original", "both"] = key(
        "filtered", "Reference text of report metrics: edited (filtered), unedited (original) or both.", source=PAPER
    )
    judge: Literal["facts", "vllm"] = key(
        "facts", "Judge of conversations. facts: rules that compare findings, zones and boxes; vllm: a language model."
    )
    llm: ModelOverride = key(ModelOverride, "Model that replaces `radvlm.llm` as judge vllm; the paper used GPT-4o.")
    segmenter: Segmenter = key(
        "none",
        "Source of masks for runs without a mask head. none: no masks; rosalia:<run>: ROSALIA of training.runs.<run>.",
    )
    failed: Literal["wrong", "leave_out"] = key(
        "wrong", "Samples with an unanswered turn. wrong: counted as wrong; leave_out: not counted (published code)."
    )

    @constraint
    def _names_are_apart(self) -> None:
        refuse_equal_names("runs and predictions", [*self.runs, *self.predictions])
        if shared_names := set(self.runs) & self.predictions.keys():
            raise ValueError(f"predictions.{min(shared_names)} has the name of a run in runs: rename one of the two")
        if len(set(self.runs)) < len(self.runs):
            raise ValueError(f"runs names {max(self.runs, key=self.runs.count)!r} twice: name it once")
        for name in self.annotators:
            metric = METRICS.get(name, name)
            if metric not in self.report_metrics:
                raise ValueError(f"annotators names {name!r}, but report_metrics lacks {metric!r}: add this metric")
        if "green" in self.annotators and not self.green.prompt:
            raise ValueError("annotators names 'green', but green.prompt is '': give the text file of GREEN's prompt")
        if "radgraph" in self.annotators and not self.radgraph.model:
            problem = "annotators names 'radgraph', but radgraph.model is ''"
            raise ValueError(f"{problem}: give the folder into which you extracted radgraph-xl.tar.gz")
        for name in self.annotations:
            if name not in [*self.runs, *self.predictions]:
                raise ValueError(
                    f"annotations.{name} is neither a run in runs nor a model in predictions: give one of their names"
                )
        for name, prediction in self.predictions.items():
            if not prediction.path:
                raise ValueError(f"predictions.{name}.path is empty: give the file of the model's outputs")


class ScoreOptions(Evaluation):
    """Settings that affect a model's scores: the evaluation's settings, and the number of bootstrap replicates."""

    replicates: int = 1000


class Chexbert(Section):
    """The report labeller CheXbert. Place its weights at `weights/chexbert.pth`."""

    model: str = key("google-bert/bert-base-uncased", "Folder or Hugging Face id of CheXbert's BERT.", source=AUTHORS)
    revision: str = key("", "Hugging Face revision; empty: the downloaded revision.")


class RadvlmModel(LanguageModel):
    """The language model of RadVLM. The paper used GPT-4o-mini, but GPT-4o as the judge and for the test split."""

    max_tokens: int = redefine(LanguageModel, "max_tokens", 2048, source=AUTHORS)


class Radvlm(Section):
    """RadVLM: an instruction mix from many datasets, and an assistant tuned on it."""

    llm: RadvlmModel = key(RadvlmModel, "The language model of all stages of RadVLM.")
    sources: FactSources = key(FactSources, "Sources of images, and of labels, boxes and phrases about them.")
    chexbert: Chexbert = key(
        Chexbert, "The labeller CheXbert, which `sources.labels` and `evaluation.annotators` can name."
    )
    filtered: FilteredTexts = key(FilteredTexts, "Removal of statements that need another image from texts.")
    conversations: Conversations = key(Conversations, "Generation of conversations about one image.")
    instructions: Instructions = key(Instructions, "Mixes of samples made of facts, texts and conversations.")
    evaluation: Evaluation = key(Evaluation, "Scoring of the answers of tuned and external models.")
