"""Settings of the models that annotate reports for RadVLM."""

from typing import Literal

from cxr.base.settings import AUTHORS, PAPER, Section, key
from cxr.llm.settings import Asking, LanguageModel, max_tokens, model


class Chexbert(Section):
    """CheXbert, whose weights are placed as `weights/chexbert.pth`."""

    model: str = key(
        "google-bert/bert-base-uncased",
        "Folder, or id on the Hugging Face hub, of the BERT whose configuration and tokenizer CheXbert has.",
        source=AUTHORS,
    )
    revision: str = key("", "Its revision on the hub; empty: what is there.")
    uncertain: Literal["present", "absent"] = key(
        "present",
        "What an uncertain label counts as in chexbert_f1, as in public code of that metric; in sources it is "
        "`sources.uncertain`.",
    )


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
