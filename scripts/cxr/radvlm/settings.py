"""Settings of RadVLM: one module for each stage that has settings."""

from typing import Literal

from cxr.base.settings import AUTHORS, Section, key
from cxr.radvlm.conversations.settings import Conversations
from cxr.radvlm.evaluation.settings import Evaluation
from cxr.radvlm.filtered.settings import FilteredTexts
from cxr.radvlm.instructions.settings import Instructions
from cxr.radvlm.sources.settings import FactSources


class Chexbert(Section):
    """CheXbert, whose weights are placed as `weights/chexbert.pth`."""

    model: str = key(
        "google-bert/bert-base-uncased",
        "Folder or Hugging Face id of the BERT whose configuration and tokenizer CheXbert uses.",
        source=AUTHORS,
    )
    revision: str = key("", "Revision on the hub; empty: the downloaded one.")
    uncertain: Literal["present", "absent"] = key(
        "present",
        "Value of uncertain labels in chexbert_f1 (default as in public code of that metric); for sources see "
        "`sources.uncertain`.",
    )


class Radvlm(Section):
    """RadVLM: an instruction mix from many datasets, and an assistant tuned on it."""

    sources: FactSources = key(FactSources, "Facts and images of each source.")
    chexbert: Chexbert = key(
        Chexbert, "The model CheXbert, where `sources.labels` or `evaluation.annotators` names it."
    )
    filtered: FilteredTexts = key(FilteredTexts, "Single-image reports and phrases.")
    conversations: Conversations = key(Conversations, "Conversations about the facts of one image.")
    instructions: Instructions = key(Instructions, "Mixes of samples from facts, texts and conversations.")
    evaluation: Evaluation = key(Evaluation, "Scores of answers.")
