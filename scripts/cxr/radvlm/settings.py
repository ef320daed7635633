"""Settings of RadVLM: those of its stages."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from cxr.base.resources import load_resource
from cxr.base.settings import AUTHORS, PAPER, Limits, Section, constraint, key, redefine, refuse_equal_names
from cxr.llm.settings import LanguageModel, ModelOverride
from cxr.radvlm.samples import TASKS

OWN = "own"  # the source that is read from the cohort
RESOURCE_FILES = ("radvlm/formats.yaml",)


class SourceFormat(NamedTuple):
    """A format of sources. reader: ``<module of cxr.radvlm.sources>.<function>``; terms: of its facts, texts and
    images; family: sources of one family share subjects, so no subject is in two of its splits, "": none are shared;
    conversations: kinds of conversations about it; is_file: its path is a file; on_mimic: it uses the images of a
    source of format mimic.
    """

    reader: str
    terms: str
    family: str = ""
    conversations: Sequence[str] = ()
    is_file: bool = False
    on_mimic: bool = False


FORMATS = {name: SourceFormat(**entry) for name, entry in load_resource(RESOURCE_FILES[0]).items()}
"""{format of external sources: how they are read}."""
Format = Literal[tuple(FORMATS)]  # type: ignore[valid-type]


class FactSource(Section):
    """One external source."""

    format: Format = key("mimic", "Format of its files.")
    path: str = key("", "Folder of the source as published; for nih, rsna and coco the file of boxes.")
    pictures: str = key(
        "", "Folder of its images (mimic: of `files/`), empty: `path`; of ms_cxr and imagenome: name of a mimic source."
    )
    reports: str = key("", "mimic: folder of `files/` with the reports; empty: `pictures`.")
    subject: str = key("", "Pattern whose first group is the subject in an image's name; empty: the image is one.")


class FactSources(Section):
    """Facts and images of each source."""

    use: list[str] = key(lambda: [OWN], "Sources of the mix.", min_length=1)
    list: dict[str, FactSource] = key(dict, "External sources, by name.")
    uncertain: Literal["absent", "present", "left_out"] = key(
        "absent", "Value of uncertain labels; left_out: they stay uncertain and are not used.", source=PAPER
    )
    labels: Literal["rules", "table", "chexbert"] = key(
        "rules",
        "Origin of the labels of own: rules or CheXbert on its reports, or columns of the manifest (table).",
    )
    weak_hedges: Literal["absent", "present"] = key("absent", "Value of weakly hedged findings in the labels of own.")
    split: Literal["mimic", "published"] = key(
        "mimic", "Split of Chest ImaGenome: that of MIMIC-CXR, or its own, whose test images MIMIC-CXR has in train."
    )

    @constraint
    def _sources_are_known(self) -> None:
        for name in self.list:
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == OWN:
                raise ValueError(f"list has the name {name!r}: use lower-case letters, digits and _, but not {OWN!r}")
        refuse_equal_names("list", self.list)
        for name in self.use:
            if name != OWN and name not in self.list:
                source_names = ", ".join([OWN, *self.list])
                raise ValueError(f"use names {name!r}, but the sources are {source_names}: declare it in list")
        if len(set(self.use)) < len(self.use):
            raise ValueError(f"use names {max(self.use, key=self.use.count)!r} twice: name it once")
        for name, source in self.list.items():
            if not source.path:
                raise ValueError(f"list.{name}.path is empty: give the folder or file of the source")
            mimic = [mimic_name for mimic_name, candidate in self.list.items() if candidate.format == "mimic"]
            if FORMATS[source.format].on_mimic and source.pictures not in mimic:
                raise ValueError(
                    f"list.{name}.pictures is {source.pictures!r}, but a source of format {source.format} needs the "
                    f"name of one of format mimic: {f'give {mimic[0]}' if mimic else 'declare one in list'}"
                )


class FilteredTexts(Section):
    """Reports and phrases without statements that need another image."""

    engine: Literal["rules", "vllm", "both", "none"] = key(
        "rules", "rules: patterns; vllm: a language model; both: vllm, with its agreement with rules; none: no change."
    )
    phrases: bool = key(True, "Whether phrases with boxes are filtered too; false: as in the paper.")
    resolved: Literal["drop", "state_absence"] = key(
        "drop", "Treatment of a resolved finding. drop: it is removed; state_absence: it is denied."
    )


class Conversations(Section):
    """Conversations about the facts of one image, standard and grounded."""

    engine: Literal["rules", "vllm"] = key("rules", "rules: a grammar over the facts; vllm: a language model.")
    test_llm: ModelOverride = key(ModelOverride, "The model of the engine vllm for the split test (paper: GPT-4o).")
    per_image: int = key(1, "Conversations of each kind per image.", source=PAPER, ge=1, le=100)
    most: int = key(100_000, "Maximum of train images with a standard one, by hash.", source=AUTHORS, ge=0)
    check: Literal["strict", "json"] = key(
        "strict", "strict: form, boxes and statements must agree with the facts; json: valid JSON (authors' code)."
    )


MixName = Annotated[str, Limits(pattern=r"^[a-z0-9][a-z0-9_]*$")]
Task = Literal[TASKS]  # type: ignore[valid-type]


class Asked(Section):
    """A task of a source in a mix."""

    repeat: int = key(1, "Passes over the samples, each with new wordings; 0: the task is left out.", ge=0, le=1000)
    most: int | None = key(None, "Maximum of pairs in train, by hash of images; 0: all; empty: as in the preset.", ge=0)


class Mix(Section):
    """A mix: a preset with changes."""

    preset: Literal["own", "paper", "code", "paper_plus_ils"] = key(
        "own",
        "own: every task from the cohort; paper, code: as published; paper_plus_ils: paper and ILS of own.",
    )
    tasks: dict[Task, dict[str, Asked]] = key(dict, "{task: {source: repeat, most}} that override the preset.")
    thresholds: str = key(
        "", "Threshold set of the ILS pairs; `mimic_ils`: the authors' release; empty: the first of `thresholds.build`."
    )


class Llava(Section):
    """The export for LLaVA's trainers, made by `results/radvlm/instructions/{mix}/llava`."""

    convention: Literal["unit", "unit_short", "grid1000"] = key(
        "unit", "Format of box coordinates in the answers: 0.30, 0.3 or 300.", source=PAPER
    )
    pictures: Literal["frame", "original"] = key(
        "frame", "frame: PNG files of the frames; original: paths of the source's files, without copies."
    )


class Instructions(Section):
    """The instruction mixes."""

    mixes: dict[MixName, Mix] = key(lambda: {"all": Mix()}, "Mixes, by name.", source=PAPER, min_length=1)
    llava: Llava = key(Llava, "The export for LLaVA's trainers.")

    @constraint
    def _names_are_apart(self) -> None:
        refuse_equal_names("mixes", self.mixes)


ModelName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Segmenter = Annotated[str, Limits(pattern=r"^(none|rosalia:[A-Za-z0-9][A-Za-z0-9_.-]*)$")]
Metric = Literal["rouge_l", "bleu", "findings_f1", "bertscore", "radgraph_f1", "green", "chexbert_f1"]

METRICS = {"chexbert": "chexbert_f1", "radgraph": "radgraph_f1"}  # {annotator: metric}, if not of its name


class Bertscore(Section):
    """The model of BERTScore."""

    model: str = key("distilbert/distilbert-base-uncased", "Folder or Hugging Face id of its model.", source=PAPER)
    revision: str = key("", "Revision on the hub; empty: the downloaded one.")


class Radgraph(Section):
    """RadGraph-XL, whose archive a user extracts."""

    model: str = key("", "Folder of the extracted archive radgraph-xl.tar.gz.")
    encoder: str = key("", "Folder or Hugging Face id of its BERT encoder; empty: the id in its config.json.")


class Green(Section):
    """The language model of GREEN; it is asked and run as set in `radvlm.llm`."""

    prompt: str = key("", "Your text file with its prompt, which contains `{reference}` and `{answer}` once each.")
    model: str = redefine(LanguageModel, "model", "StanfordAIMI/GREEN-radllama2-7b", source=AUTHORS)
    revision: str = key("", "Revision on the hub; empty: the downloaded one.")
    prompt_bytes: int = key(
        6000,
        "Maximum of a prompt in UTF-8; it and the answer share 4,096 tokens.",
        unit="bytes",
        ge=256,
        le=10**7,
    )


class OtherModel(Section):
    """Outputs of an external model."""

    adapter: Literal["jsonl", "llava_ov", "llava_med", "radialog", "chexagent", "maira2"] = key(
        "jsonl", "Adapter that reads the outputs; `asked.jsonl` has the questions to the model."
    )
    path: str = key("", "JSON lines of {sample_id, turn, text} or {sample_id, turn, failure}.")
    boxes: Literal["", "unit", "percent", "hundred", "bins", "grid1000", "pixels"] = key(
        "", "Format in which the model writes boxes; empty: as its adapter declares."
    )


class Evaluation(Section):
    """Scores of answers, compared with blind answers, exchanged images, other models and the paper."""

    runs: list[str] = key(lambda: ["radvlm"], "Scored runs of vlm.tuning: the model, then the rows of the ablations.")
    predictions: dict[ModelName, OtherModel] = key(dict, "External models, by name.")
    beyond: bool = key(False, "Whether external models are also scored, with a mark, beyond what they were made for.")
    label_match: Literal["asserted", "substring"] = key(
        "asserted",
        "asserted: labels that an answer asserts; substring: that it names, denied or not (published code).",
    )
    report_metrics: list[Metric] = key(
        lambda: ["rouge_l", "bleu", "findings_f1"], "Metrics of reports; all but these need annotations.", min_length=1
    )
    annotators: list[Literal["bertscore", "chexbert", "green", "radgraph"]] = key(
        list, "Models that annotate the reports, each for its metric (docs/how-to/models.md)."
    )
    bertscore: Bertscore = key(Bertscore, "The annotator bertscore.")
    green: Green = key(Green, "The annotator green.")
    radgraph: Radgraph = key(Radgraph, "The annotator radgraph.")
    annotations: dict[ModelName, str] = key(
        dict, "{run or external model: file of external annotations of its reports and their references}."
    )
    reference: Literal["filtered", "original", "both"] = key(
        "filtered", "References of reports. filtered: single-image text; original: report section; both.", source=PAPER
    )
    judge: Literal["facts", "vllm"] = key(
        "facts", "Judge of conversations. facts: compares findings, places, boxes; vllm: a language model."
    )
    llm: ModelOverride = key(ModelOverride, "The language model of the judge vllm; the paper used GPT-4o.")
    segmenter: Segmenter = key(
        "none", "Masks for answers of runs without a head. rosalia:<run>: by ROSALIA of that run of training.runs."
    )
    failed: Literal["wrong", "leave_out"] = key(
        "wrong", "Failed samples. wrong: they count as wrong; leave_out: they are excluded (published code)."
    )

    @constraint
    def _names_are_apart(self) -> None:
        refuse_equal_names("runs and predictions", [*self.runs, *self.predictions])
        if shared_names := set(self.runs) & self.predictions.keys():
            raise ValueError(f"predictions.{min(shared_names)} has the name of a run of runs: rename it")
        if len(set(self.runs)) < len(self.runs):
            raise ValueError(f"runs names {max(self.runs, key=self.runs.count)!r} twice: name it once")
        for name in self.annotators:
            metric = METRICS.get(name, name)
            if metric not in self.report_metrics:
                raise ValueError(f"annotators names {name!r}, but report_metrics lacks {metric!r}: name it there too")
        if "green" in self.annotators and not self.green.prompt:
            raise ValueError("annotators names 'green', but green.prompt is '': give the text file of GREEN's prompt")
        if "radgraph" in self.annotators and not self.radgraph.model:
            problem = "annotators names 'radgraph', but radgraph.model is ''"
            raise ValueError(f"{problem}: give the folder of radgraph-xl.tar.gz's files")
        for name in self.annotations:
            if name not in [*self.runs, *self.predictions]:
                raise ValueError(f"annotations.{name} is of no model of runs or predictions: name one of them")
        for name, prediction in self.predictions.items():
            if not prediction.path:
                raise ValueError(f"predictions.{name}.path is empty: give the file of the model's outputs")


class ScoreOptions(Evaluation):
    """What the scores of a model depend on."""

    replicates: int = 1000


class Chexbert(Section):
    """CheXbert, whose weights are placed as `weights/chexbert.pth`."""

    model: str = key("google-bert/bert-base-uncased", "Folder or Hugging Face id of its BERT.", source=AUTHORS)
    revision: str = key("", "Revision on the hub; empty: the downloaded one.")


class RadvlmModel(LanguageModel):
    """The language model of the engines vllm and both; the paper used GPT-4o-mini, and GPT-4o to judge and for test."""

    max_tokens: int = redefine(LanguageModel, "max_tokens", 2048, source=AUTHORS)


class Radvlm(Section):
    """RadVLM: an instruction mix from many datasets, and an assistant tuned on it."""

    llm: RadvlmModel = key(RadvlmModel, "The language model of all stages.")
    sources: FactSources = key(FactSources, "Facts and images of each source.")
    chexbert: Chexbert = key(Chexbert, "CheXbert, where `sources.labels` or `evaluation.annotators` names it.")
    filtered: FilteredTexts = key(FilteredTexts, "Single-image reports and phrases.")
    conversations: Conversations = key(Conversations, "Conversations about the facts of one image.")
    instructions: Instructions = key(Instructions, "Mixes of samples from facts, texts and conversations.")
    evaluation: Evaluation = key(Evaluation, "Scores of answers.")
