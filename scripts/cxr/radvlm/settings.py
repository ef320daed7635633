"""Settings of RadVLM: one module for each stage that has settings."""

from cxr.base.settings import AUTHORS, Address, Section, key
from cxr.llm.settings import Asking, Execution, LanguageModel, context, max_tokens, model, revision
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


class RadvlmExecution(Execution):
    """How the language models are run. No answer depends on it, so a change re-runs nothing."""

    judge_server: Address = key("", "Address of the server of the judge; empty for the same server.")
    green_server: Address = key("", "Address of the server of the annotator green; empty for the same server.")


class RadvlmModel(Asking, LanguageModel):
    """The language model of the engines vllm and both; the paper used GPT-4o-mini, and GPT-4o to judge and for test."""

    model: str = model("mistralai/Mistral-Small-3.1-24B-Instruct-2503")
    revision: str = revision("68faf511d618ef198fef186659617cfd2eb8e33a")
    context: int = context()
    max_tokens: int = max_tokens(2048, AUTHORS)
    execution: RadvlmExecution = key(RadvlmExecution, "How the language models are run.")


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
