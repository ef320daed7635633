"""Settings of RadVLM's evaluation."""

from typing import Annotated, Literal

from cxr.base.settings import (
    AUTHORS,
    PAPER,
    Address,
    Limits,
    Replicates,
    Section,
    Share,
    constraint,
    key,
    refuse_equal_names,
)
from cxr.llm.settings import Asking, Execution, LanguageModel, context, max_tokens, model, revision

ModelName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Segmenter = Annotated[str, Limits(pattern=r"^(none|rosalia:[A-Za-z0-9][A-Za-z0-9_.-]*)$")]
Metric = Literal["rouge_l", "bleu", "findings_f1", "bertscore", "radgraph_f1", "green", "chexbert_f1"]

METRICS = {"chexbert": "chexbert_f1", "radgraph": "radgraph_f1"}
"""{annotator: its metric}, of those that are not named like it."""


class Bertscore(Section):
    """The model of BERTScore."""

    model: str = key(
        "distilbert/distilbert-base-uncased", "Folder, or id on the Hugging Face hub, of its model.", source=PAPER
    )
    revision: str = key("", "Its revision on the hub; empty: what is there.")
    layer: int = key(5, "Layer whose vectors are compared.", source=PAPER, ge=1)
    baseline: float = key(
        0.66620487, "F1 of unrelated sentences by this model and layer, which becomes 0.", source=AUTHORS, ge=0, lt=1
    )


class Radgraph(Section):
    """RadGraph-XL, whose archive a user extracts."""

    model: str = key("", "Folder of the extracted archive radgraph-xl.tar.gz: config.json, weights.th, vocabulary/.")
    encoder: str = key(
        "",
        "Folder, or id on the Hugging Face hub, of the BERT whose tokenizer and configuration it has; empty: the id in "
        "its config.json.",
    )


class Green(Asking, LanguageModel):
    """The language model of GREEN; how it is run stands in `evaluation.llm.execution`."""

    prompt: str = key(
        "",
        "Text file of its prompt, with `{reference}` and `{answer}` once each; it is the only message. You place it.",
    )
    model: str = model("StanfordAIMI/GREEN-radllama2-7b", AUTHORS)
    revision: str = key("", "Its revision on the hub; empty: what is there.")
    context: int = key(
        4096, "Longest prompt and answer together.", unit="tokens", source=AUTHORS, ge=1024, le=1_000_000
    )
    max_tokens: int = max_tokens(1024)
    prompt_bytes: int = key(
        6000,
        "Longest prompt with both reports, in UTF-8; a longer one is not asked. It must fit `context`.",
        unit="bytes",
        ge=256,
        le=10_000_000,
    )


class JudgeExecution(Execution):
    """How the language models are run. No answer depends on it, so a change re-runs nothing."""

    green_server: Address = key("", "Address of the server of the annotator green; empty for the same server.")


class JudgeLlm(Asking, LanguageModel):
    """The language model of the judge vllm; the paper used GPT-4o."""

    model: str = model("mistralai/Mistral-Small-3.1-24B-Instruct-2503")
    revision: str = revision("68faf511d618ef198fef186659617cfd2eb8e33a")
    context: int = context()
    max_tokens: int = max_tokens(2048)
    execution: JudgeExecution = key(JudgeExecution, "How the model is run, and that of the annotator green.")


class OtherModel(Section):
    """Outputs of a model that others made."""

    adapter: Literal["jsonl", "llava_ov", "llava_med", "radialog", "chexagent", "maira2"] = key(
        "jsonl", "How they are read; `asked.jsonl` tells what the model is to be asked."
    )
    path: str = key("", "JSON lines of {sample_id, turn, text} or {sample_id, turn, failure}.")
    boxes: Literal["", "unit", "percent", "hundred", "bins", "grid1000", "pixels"] = key(
        "", "How the model writes boxes; empty: as its adapter declares. It is never guessed from the numbers."
    )


class Evaluation(Section):
    """Scores of answers, beside blind answers, exchanged pictures, other models and the paper."""

    runs: list[str] = key(
        lambda: ["radvlm"],
        "Runs of vlm.tuning whose answers are scored. The first is the model, the others are rows of the ablations.",
    )
    predictions: dict[ModelName, OtherModel] = key(dict, "Other models, by name.")
    beyond: bool = key(
        False, "Whether other models are asked and scored on tasks too that they were not made for; they are marked."
    )
    iou: Share = key(0.5, "IoU at which a box hits.", source=PAPER)
    strict_iou: Share = key(0.75, "The same, strictly.")
    coco_ious: list[Share] = key(
        lambda: [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95], "IoUs that COCO's AP is the mean of.",
        min_length=1,
    )  # fmt: skip
    label_match: Literal["asserted", "substring"] = key(
        "asserted", "When an answer says a label. substring: its name is there, denied or not (the published code)."
    )
    synonyms: bool = key(False, "Whether other words for a label count too, where labels must be asserted.")
    report_metrics: list[Metric] = key(
        lambda: ["rouge_l", "bleu", "findings_f1"],
        "Metrics of reports. bertscore, radgraph_f1, green and chexbert_f1 need annotations; without them their cells "
        "are empty.",
        min_length=1,
    )
    annotators: list[Literal["bertscore", "chexbert", "green", "radgraph"]] = key(
        list, "Models that annotate the reports in the run, each for the metric of its name (docs/how-to/models.md)."
    )
    bertscore: Bertscore = key(Bertscore, "The annotator bertscore.")
    green: Green = key(Green, "The annotator green.")
    radgraph: Radgraph = key(Radgraph, "The annotator radgraph.")
    annotations: dict[ModelName, str] = key(
        dict, "{run or other model: file of annotations of its reports and of the references, made elsewhere}."
    )
    reference: Literal["filtered", "original", "both"] = key(
        "filtered", "What reports are compared with: the single-image text, the report's own section.", source=PAPER
    )
    judge: Literal["facts", "vllm"] = key(
        "facts", "Who scores conversations. facts: the findings, places and boxes of both answers; vllm: a model."
    )
    llm: JudgeLlm = key(JudgeLlm, "The language model of the judge vllm.")
    checked: int = key(200, "Conversations that the judge itself is tried on; 0: all.", unit="conversations", ge=0)
    segmenter: Segmenter = key(
        "none",
        "What draws masks for the answers of runs that draw none. rosalia:<run>: ROSALIA of that run of training.runs; "
        "its masks and texts stand beside the answers and change none.",
    )
    failed: Literal["wrong", "leave_out"] = key(
        "wrong", "How a sample without a full answer counts; the published code leaves such conversations out."
    )
    replicates: Replicates = key(1000, "Bootstrap replicates, by patient; 0 for none.")
    interval: Share = key(0.95, "Coverage of the intervals.")

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
