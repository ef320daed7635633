"""The annotator ``bertscore`` matches tokens of answer and reference by the cosine similarity of BERT embeddings.

As in the authors' code, there are no idf weights, and special tokens are ignored. F1 is rescaled so that the F1 of
unrelated texts becomes 0.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from transformers import AutoModel, AutoTokenizer

from cxr.base.errors import UserError, refuse_unreadable
from cxr.nets.hub import find_downloaded_model
from cxr.radvlm.evaluation.answers import Annotate

METRIC = "bertscore"
PAIRS = True
INPUTS: dict[str, str] = {}
KEY = "radvlm.evaluation.bertscore"
LAYER = 5  # layer whose embeddings are compared, of distilbert-base-uncased (paper)
BASELINE = 0.66620487  # F1 of unrelated sentences with this model and layer, rescaled to 0 (authors' code)


Embedded = tuple[torch.Tensor, torch.Tensor]
"""An embedded text: (token vectors of unit length (T, H), bool (T,), which is False for special tokens)."""


def load_embedder(folder: str) -> Callable[[str], Embedded]:
    """Return a function that embeds a text with layer LAYER of a model. Raises UserError for an unsuitable model."""
    with refuse_unreadable(folder, f"{KEY}.model: {folder} holds no model", "give the folder of a BERT model"):
        words = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        load_options = {"local_files_only": True, "use_safetensors": True, "dtype": torch.float32}
        net = AutoModel.from_pretrained(folder, **load_options).eval()
    layers, longest = net.config.num_hidden_layers, net.config.max_position_embeddings
    if layers < LAYER:
        problem = f"{KEY}.model: {folder} has {layers} layers, but layer {LAYER} is compared"
        raise UserError(f"{problem}: give a model with {LAYER} or more layers")
    ends = torch.tensor([words.cls_token_id, words.sep_token_id])

    def embed(text: str) -> Embedded:
        ids = words(text.strip(), truncation=True, max_length=longest)["input_ids"]
        with torch.inference_mode():
            states = net(torch.tensor([ids]), output_hidden_states=True).hidden_states[LAYER][0]
        return torch.nn.functional.normalize(states, dim=-1), ~torch.isin(torch.tensor(ids), ends)

    return embed


def rescaled_f1(answer: Embedded, reference: Embedded) -> float:
    """Return the rescaled F1 of two embedded texts. Before rescaling, the F1 of an empty text is 0."""
    (answer_vectors, answer_mask), (reference_vectors, reference_mask) = answer, reference
    similarity = answer_vectors @ reference_vectors.T
    score = 0.0
    if answer_mask.any() and reference_mask.any():
        precision = similarity.max(dim=1).values[answer_mask].mean().item()
        recall = similarity.max(dim=0).values[reference_mask].mean().item()
        score = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return (score - BASELINE) / (1 - BASELINE)


def load(settings: Mapping, _files: Mapping[str, str], _execution: Mapping) -> Annotate:
    """Return the annotator. ``settings``: model and revision. Raises UserError if the model is missing."""
    embed = load_embedder(find_downloaded_model(KEY, settings["model"], settings["revision"]))

    def annotate(pairs: Sequence[tuple[str, str]]) -> list[dict]:
        return [{"f1": rescaled_f1(embed(answer), embed(reference))} for answer, reference in pairs]

    return annotate
