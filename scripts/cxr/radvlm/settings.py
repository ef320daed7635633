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
        "Folder, or id on the Hugging Face hub, of the BERT whose configuration and tokenizer CheXbert has.",
        source=AUTHORS,
    )
    revision: str = key("", "Its revision on the hub; empty: what is there.")
    uncertain: Literal["present", "absent"] = key(
        "present",
        "What an uncertain label counts as in chexbert_f1, as in public code of that metric; in sources it is "
        "`sources.uncertain`.",
    )


class Radvlm(Section):
    """RadVLM: an instruction mix from many datasets, and an assistant."""

    sources: FactSources = key(FactSources, "Facts and pictures of each source.")
    chexbert: Chexbert = key(
        Chexbert, "The model CheXbert, where `sources.labels` or `evaluation.annotators` names it."
    )
    filtered: FilteredTexts = key(FilteredTexts, "Reports and phrases without what needs another image.")
    conversations: Conversations = key(Conversations, "Turns about the facts of one image.")
    instructions: Instructions = key(Instructions, "Mixes of samples, from facts, texts and conversations.")
    evaluation: Evaluation = key(Evaluation, "Scores of answers.")
