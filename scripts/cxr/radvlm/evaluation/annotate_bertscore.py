"""BERTScore of an answer and its reference: tokens are matched by the cosine similarity of their BERT embeddings.

Follows the authors' definition without idf weights: each token is matched to the best token of the other text, special
tokens can be matched but do not count, and F1 is rescaled by a baseline of unrelated sentences.
"""

from collections.abc import Mapping, Sequence

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


class Embedder:
    """Embeds the tokens of a text: unit vectors of one layer of a model."""

    def __init__(self, folder: str):
        with refuse_unreadable(folder, f"{KEY}.model: {folder} holds no model", "give the folder of one"):
            self.words = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            load_options = {"local_files_only": True, "use_safetensors": True, "dtype": torch.float32}
            self.net = AutoModel.from_pretrained(folder, **load_options).eval()
        layers = self.net.config.num_hidden_layers
        if layers < LAYER:
            raise UserError(
                f"{KEY}.model: {folder} has {layers} layers, but layer {LAYER} is compared: "
                f"give a model with {LAYER} or more"
            )
        self.longest = self.net.config.max_position_embeddings

    def __call__(self, text: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the token vectors (T, H) of a text, and a mask of non-special tokens, bool (T,)."""
        ids = self.words(text.strip(), truncation=True, max_length=self.longest)["input_ids"]
        with torch.inference_mode():
            states = self.net(torch.tensor([ids]), output_hidden_states=True).hidden_states[LAYER][0]
        ends = torch.tensor([self.words.cls_token_id, self.words.sep_token_id])
        return torch.nn.functional.normalize(states, dim=-1), ~torch.isin(torch.tensor(ids), ends)


def rescaled_f1(answer: tuple[torch.Tensor, torch.Tensor], reference: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Return the rescaled F1 of two embedded texts; F1 of an empty text is 0 before rescaling."""
    (answer_vectors, answer_mask), (reference_vectors, reference_mask) = answer, reference
    similarity = answer_vectors @ reference_vectors.T
    score = 0.0
    if answer_mask.any() and reference_mask.any():
        precision = similarity.max(dim=1).values[answer_mask].mean().item()
        recall = similarity.max(dim=0).values[reference_mask].mean().item()
        score = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return (score - BASELINE) / (1 - BASELINE)


def load(settings: Mapping, files: Mapping[str, str], execution: Mapping) -> Annotate:
    """Return the annotator. ``settings``: model, revision. Raises UserError for a missing model."""
    del files, execution
    embed = Embedder(find_downloaded_model(KEY, settings["model"], settings["revision"]))

    def annotate(pairs: Sequence[tuple[str, str]]) -> list[dict]:
        return [{"f1": rescaled_f1(embed(answer), embed(reference))} for answer, reference in pairs]

    return annotate
