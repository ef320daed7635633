"""Settings of RadVLM: one module for each stage that has settings."""

from cxr.base.settings import Section, key
from cxr.workflow.settings.radvlm.annotators import Chexbert
from cxr.workflow.settings.radvlm.conversations import Conversations
from cxr.workflow.settings.radvlm.evaluation import Evaluation
from cxr.workflow.settings.radvlm.filtered import FilteredTexts
from cxr.workflow.settings.radvlm.instructions import Instructions
from cxr.workflow.settings.radvlm.sources import FactSources


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
