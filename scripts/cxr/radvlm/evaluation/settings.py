"""Settings of RadVLM's evaluation."""

from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, PAPER, Limits, Section, constraint, key, redefine, refuse_equal_names
from cxr.llm.settings import LanguageModel, ModelOverride

ModelName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Segmenter = Annotated[str, Limits(pattern=r"^(none|rosalia:[A-Za-z0-9][A-Za-z0-9_.-]*)$")]
Metric = Literal["rouge_l", "bleu", "findings_f1", "bertscore", "radgraph_f1", "green", "chexbert_f1"]

METRICS = {"chexbert": "chexbert_f1", "radgraph": "radgraph_f1"}
"""{annotator: metric} of annotators with another name than their metric."""


class Bertscore(Section):
    """The model of BERTScore."""

    model: str = key(
        "distilbert/distilbert-base-uncased",
        "Folder or Hugging Face id of a model like DistilBERT (layer 5 is compared).",
        source=PAPER,
    )
    revision: str = key("", "Revision on the hub; empty: the downloaded one.")


class Radgraph(Section):
    """RadGraph-XL, whose archive a user extracts."""

    model: str = key("", "Folder of the extracted archive radgraph-xl.tar.gz.")
    encoder: str = key("", "Folder or Hugging Face id of its BERT encoder; empty: the id in its config.json.")


class Green(Section):
    """The language model of GREEN; it is asked and run as set in `radvlm.llm`."""

    prompt: str = key(
        "", "Text file that you provide with its prompt, which contains `{reference}` and `{answer}` once each."
    )
    model: str = redefine(LanguageModel, "model", "StanfordAIMI/GREEN-radllama2-7b", source=AUTHORS)
    revision: str = key("", "Revision on the hub; empty: the downloaded one.")
    prompt_bytes: int = key(
        6000,
        "Maximum length of the prompt with both reports, in UTF-8; longer ones fail. With the answer it must fit "
        "into 4,096 tokens.",
        unit="bytes",
        ge=256,
        le=10_000_000,
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

    runs: list[str] = key(
        lambda: ["radvlm"], "Scored runs of vlm.tuning: first the model, then the rows of the ablations."
    )
    predictions: dict[ModelName, OtherModel] = key(dict, "External models, by name.")
    beyond: bool = key(
        False, "Whether external models are also scored, with a mark, on tasks that they were not made for."
    )
    label_match: Literal["asserted", "substring"] = key(
        "asserted",
        "When a label counts. asserted: the answer asserts it; substring: it contains its name, denied or not "
        "(published code).",
    )
    report_metrics: list[Metric] = key(
        lambda: ["rouge_l", "bleu", "findings_f1"],
        "Metrics of reports. bertscore, radgraph_f1, green and chexbert_f1 need annotations; else their cells are"
        " empty.",
        min_length=1,
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
        "none",
        "Masks for the answers of runs without a segmentation head. rosalia:<run>: by ROSALIA of that run of "
        "training.runs.",
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
            raise ValueError(
                "annotators names 'radgraph', but radgraph.model is '': give the folder of radgraph-xl.tar.gz's files"
            )
        for name in self.annotations:
            if name not in [*self.runs, *self.predictions]:
                raise ValueError(f"annotations.{name} is of no model of runs or predictions: name one of them")
        for name, prediction in self.predictions.items():
            if not prediction.path:
                raise ValueError(f"predictions.{name}.path is empty: give the file of the model's outputs")


class ScoreOptions(Evaluation):
    """What the scores of a model depend on."""

    replicates: int = 1000
