"""Settings of RadVLM and its stages."""

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
    """A format of sources. reader: ``<module of cxr.radvlm.sources>.<function>``; terms: terms of use; family:
    sources of one family share subjects, each of which is in one split, "": no shared subjects; conversations: kinds
    of conversations about the source; is_file: the path is a file, not a folder; on_mimic: the source uses the images
    of a source of format mimic.
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

    format: Format = key("mimic", "Format of the source's files.")
    path: str = key("", "Folder of the source as published; for nih, rsna and coco, the file of boxes.")
    pictures: str = key(
        "", "Image folder (mimic: of `files/`); empty: `path`. For ms_cxr and imagenome: a source of format mimic."
    )
    reports: str = key("", "mimic: folder of `files/` with the reports; empty: `pictures`.")
    subject: str = key("", "Regex on image names whose first group is the subject; empty: each image is a subject.")


class FactSources(Section):
    """Facts and images of each source."""

    use: list[str] = key(lambda: [OWN], "Sources that the mix uses.", min_length=1)
    list: dict[str, FactSource] = key(dict, "External sources by name.")
    uncertain: Literal["absent", "present", "left_out"] = key(
        "absent", "Value that uncertain labels get; left_out: they stay uncertain and are not used.", source=PAPER
    )
    labels: Literal["rules", "table", "chexbert"] = key(
        "rules",
        "Labels of own. rules: from its reports; table: from the manifest; chexbert: by CheXbert from its reports.",
    )
    weak_hedges: Literal["absent", "present"] = key("absent", "Label value of weakly hedged findings (source own).")
    split: Literal["mimic", "published"] = key(
        "mimic",
        "Split of Chest ImaGenome. mimic: MIMIC-CXR's; published: its own, whose test images MIMIC-CXR has in train.",
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
    """Reports and phrases without statements about other images."""

    engine: Literal["rules", "vllm", "both", "none"] = key(
        "rules", "rules: patterns; vllm: a language model; both: vllm, compared with the rules; none: unchanged texts."
    )
    phrases: bool = key(True, "Whether phrases with boxes are filtered too; false: as in the paper.")
    resolved: Literal["drop", "state_absence"] = key(
        "drop", "Treatment of findings that have resolved. drop: they are removed; state_absence: they are denied."
    )


class Conversations(Section):
    """Conversations about the facts of one image, standard and grounded."""

    engine: Literal["rules", "vllm"] = key("rules", "rules: a grammar over the facts; vllm: a language model.")
    test_llm: ModelOverride = key(ModelOverride, "Model for the split test, with the engine vllm (paper: GPT-4o).")
    per_image: int = key(1, "Conversations of each kind (standard, grounded) per image.", source=PAPER, ge=1, le=100)
    most: int = key(100_000, "Maximum train images with a standard conversation, chosen by hash.", source=AUTHORS, ge=0)
    check: Literal["strict", "json"] = key(
        "strict", "strict: form, boxes and statements must agree with the facts; json: valid JSON (authors' code)."
    )


MixName = Annotated[str, Limits(pattern=r"^[a-z0-9][a-z0-9_]*$")]
Task = Literal[TASKS]  # type: ignore[valid-type]


class Passes(Section):
    """A task of a source in a mix."""

    repeat: int = key(1, "Passes over the samples, each with new wordings; 0: the source is not used.", ge=0, le=1000)
    most: int | None = key(None, "Maximum pairs in train, chosen by image hash; 0: all; null: as in the preset.", ge=0)


class Mix(Section):
    """A mix: a preset with changes."""

    preset: Literal["own", "paper", "code", "paper_plus_ils"] = key(
        "own",
        "own: all tasks, from the cohort; paper, code: published mixes; paper_plus_ils: paper and the cohort's ILS.",
    )
    tasks: dict[Task, dict[str, Passes]] = key(dict, "{task: {source: {repeat, most}}} that override the preset.")
    thresholds: str = key(
        "", "Threshold set of the ILS pairs; mimic_ils: the authors' release; empty: the first of `thresholds.build`."
    )


class Llava(Section):
    """The export for LLaVA's trainers, made by `results/radvlm/instructions/{mix}/llava`."""

    convention: Literal["unit", "unit_short", "grid1000"] = key(
        "unit", "Box coordinates in the answers. unit: 0.30; unit_short: 0.3; grid1000: 300.", source=PAPER
    )
    pictures: Literal["frame", "original"] = key(
        "frame", "frame: PNG files of the frames; original: paths of the source's files, without copies."
    )


class Instructions(Section):
    """The instruction mixes."""

    mixes: dict[MixName, Mix] = key(lambda: {"all": Mix()}, "Instruction mixes by name.", source=PAPER, min_length=1)
    llava: Llava = key(Llava, "The export for LLaVA's trainers.")

    @constraint
    def _names_are_apart(self) -> None:
        refuse_equal_names("mixes", self.mixes)


ModelName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Segmenter = Annotated[str, Limits(pattern=r"^(none|rosalia:[A-Za-z0-9][A-Za-z0-9_.-]*)$")]
Metric = Literal["rouge_l", "bleu", "findings_f1", "bertscore", "radgraph_f1", "green", "chexbert_f1"]

METRICS = {"chexbert": "chexbert_f1", "radgraph": "radgraph_f1"}  # {annotator: metric} where names differ


class Bertscore(Section):
    """The model of BERTScore."""

    model: str = key("distilbert/distilbert-base-uncased", "Folder or Hugging Face id of the BERT model.", source=PAPER)
    revision: str = key("", "Hugging Face revision; empty: the downloaded revision.")


class Radgraph(Section):
    """RadGraph-XL, whose archive you extract."""

    model: str = key("", "Folder of the extracted archive radgraph-xl.tar.gz.")
    encoder: str = key("", "Folder or Hugging Face id of RadGraph's BERT encoder; empty: the id in its config.json.")


class Green(Section):
    """The language model of GREEN, which runs as set in `radvlm.llm`."""

    prompt: str = key("", "Your text file of GREEN's prompt, which contains `{reference}` and `{answer}` once each.")
    model: str = redefine(LanguageModel, "model", "StanfordAIMI/GREEN-radllama2-7b", source=AUTHORS)
    revision: str = key("", "Hugging Face revision; empty: the downloaded revision.")
    prompt_bytes: int = key(
        6000,
        "Maximum length of the prompt in UTF-8; longer prompts fail. Prompt and answer share 4,096 tokens.",
        unit="bytes",
        ge=256,
        le=10**7,
    )


class OtherModel(Section):
    """Outputs of an external model."""

    adapter: Literal["jsonl", "llava_ov", "llava_med", "radialog", "chexagent", "maira2"] = key(
        "jsonl", "Format of the model's outputs; `asked.jsonl` has the questions for the model."
    )
    path: str = key("", "JSON Lines of {sample_id, turn, text} or {sample_id, turn, failure}.")
    boxes: Literal["", "unit", "percent", "hundred", "bins", "grid1000", "pixels"] = key(
        "", "Format of the boxes in the outputs; empty: the adapter's default."
    )


class Evaluation(Section):
    """Scores of answers, compared with blind answers, exchanged images, other models and the paper."""

    runs: list[str] = key(lambda: ["radvlm"], "Runs of vlm.tuning to score: the main model, then the ablations.")
    predictions: dict[ModelName, OtherModel] = key(dict, "External models by name.")
    beyond: bool = key(False, "Whether to score external models also on tasks that they were not made for (marked).")
    label_match: Literal["asserted", "substring"] = key(
        "asserted",
        "Labels that count. asserted: the answer asserts them; substring: it names or denies them (published code).",
    )
    report_metrics: list[Metric] = key(
        lambda: ["rouge_l", "bleu", "findings_f1"], "Report metrics; non-default ones need annotations.", min_length=1
    )
    annotators: list[Literal["bertscore", "chexbert", "green", "radgraph"]] = key(
        list, "Models that annotate the reports, one for each metric (docs/how-to/models.md)."
    )
    bertscore: Bertscore = key(Bertscore, "Settings of the annotator bertscore.")
    green: Green = key(Green, "Settings of the annotator green.")
    radgraph: Radgraph = key(Radgraph, "Settings of the annotator radgraph.")
    annotations: dict[ModelName, str] = key(
        dict, "{run or external model: file of external annotations of its reports and their references}."
    )
    reference: Literal["filtered", "original", "both"] = key(
        "filtered", "Reference reports: filtered (single-image) texts, original sections, or both.", source=PAPER
    )
    judge: Literal["facts", "vllm"] = key(
        "facts", "Judge of conversations. facts: rules that compare findings, zones and boxes; vllm: a language model."
    )
    llm: ModelOverride = key(ModelOverride, "Another model for the judge vllm; the paper used GPT-4o.")
    segmenter: Segmenter = key(
        "none", "Source of masks for runs without a head. rosalia:<run>: ROSALIA as trained in training.runs.<run>."
    )
    failed: Literal["wrong", "leave_out"] = key(
        "wrong", "Failed samples. wrong: they count as wrong; leave_out: they are excluded (published code)."
    )

    @constraint
    def _names_are_apart(self) -> None:
        refuse_equal_names("runs and predictions", [*self.runs, *self.predictions])
        if shared_names := set(self.runs) & self.predictions.keys():
            raise ValueError(f"predictions.{min(shared_names)} has the same name as a run in runs: rename it")
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
                raise ValueError(f"annotations.{name} names no model in runs or predictions: use such a name")
        for name, prediction in self.predictions.items():
            if not prediction.path:
                raise ValueError(f"predictions.{name}.path is empty: give the file of the model's outputs")


class ScoreOptions(Evaluation):
    """Settings that affect a model's scores."""

    replicates: int = 1000


class Chexbert(Section):
    """CheXbert, whose weights you place at `weights/chexbert.pth`."""

    model: str = key("google-bert/bert-base-uncased", "Folder or Hugging Face id of CheXbert's BERT.", source=AUTHORS)
    revision: str = key("", "Hugging Face revision; empty: the downloaded revision.")


class RadvlmModel(LanguageModel):
    """The language model of the engines vllm and both. The paper used GPT-4o-mini; GPT-4o for judge and test split."""

    max_tokens: int = redefine(LanguageModel, "max_tokens", 2048, source=AUTHORS)


class Radvlm(Section):
    """RadVLM: an instruction mix from many datasets, and an assistant tuned on it."""

    llm: RadvlmModel = key(RadvlmModel, "The language model of all stages.")
    sources: FactSources = key(FactSources, "Facts and images of each source.")
    chexbert: Chexbert = key(Chexbert, "The model CheXbert, if `sources.labels` or `evaluation.annotators` names it.")
    filtered: FilteredTexts = key(FilteredTexts, "Single-image reports and phrases.")
    conversations: Conversations = key(Conversations, "Conversations about the facts of one image.")
    instructions: Instructions = key(Instructions, "Mixes of samples from facts, texts and conversations.")
    evaluation: Evaluation = key(Evaluation, "Scores of answers.")
