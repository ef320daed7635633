"""Settings of RadVLM: one module for each stage that has settings."""

from cxr.base.settings import AUTHORS, Section, key, redefine
from cxr.llm.settings import LanguageModel
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


class RadvlmModel(LanguageModel):
    """The language model of the engines vllm and both; the paper used GPT-4o-mini, and GPT-4o to judge and for test."""

    max_tokens: int = redefine(LanguageModel, "max_tokens", 2048, source=AUTHORS)


class Radvlm(Section):
    """RadVLM: an instruction mix from many datasets, and an assistant tuned on it."""

    llm: RadvlmModel = key(RadvlmModel, "The language model of all stages.")
    sources: FactSources = key(FactSources, "Facts and images of each source.")
    chexbert: Chexbert = key(
        Chexbert, "The model CheXbert, where `sources.labels` or `evaluation.annotators` names it."
    )
    filtered: FilteredTexts = key(FilteredTexts, "Single-image reports and phrases.")
    conversations: Conversations = key(Conversations, "Conversations about the facts of one image.")
    instructions: Instructions = key(Instructions, "Mixes of samples from facts, texts and conversations.")
    evaluation: Evaluation = key(Evaluation, "Scores of answers.")
