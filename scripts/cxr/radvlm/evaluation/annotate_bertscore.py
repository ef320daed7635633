"""BERTScore of an answer and its reference: words of both are matched by the cosine of what a BERT makes of them.

As its authors define it, without weights by frequency: each token of one text meets its best of the other, marks of the
ends may be met but do not count, and F1 is rescaled by that of unrelated sentences.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from transformers import AutoModel, AutoTokenizer

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.nets.hub import downloaded

METRIC = "bertscore"
PAIRS = True
INPUTS: dict[str, str] = {}
KEY = "radvlm.evaluation.bertscore"


class Embedder:
    """Unit vectors of the tokens of texts, after a layer of a net."""

    def __init__(self, folder: str, layer: int):
        try:
            self.words = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            how = {"local_files_only": True, "use_safetensors": True, "dtype": torch.float32}
            self.net = AutoModel.from_pretrained(folder, **how).eval()
        except (OSError, ValueError) as error:
            refuse_machine_fault(folder, error)
            first = str(error).strip().splitlines()[0][:160]
            raise UserError(f"{KEY}.model: {folder} holds no model ({first}): give the folder of one") from None
        layers = self.net.config.num_hidden_layers
        if layer > layers:
            raise UserError(f"{KEY}.layer is {layer}, but the model has {layers} layers: give one of these")
        self.layer, self.longest = layer, self.net.config.max_position_embeddings

    def __call__(self, text: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the vectors (T, H) of a text's tokens, and which of them count, bool (T,)."""
        ids = self.words(text.strip(), truncation=True, max_length=self.longest)["input_ids"]
        with torch.inference_mode():
            states = self.net(torch.tensor([ids]), output_hidden_states=True).hidden_states[self.layer][0]
        ends = torch.tensor([self.words.cls_token_id, self.words.sep_token_id])
        return torch.nn.functional.normalize(states, dim=-1), ~torch.isin(torch.tensor(ids), ends)


def f1(answer: tuple[torch.Tensor, torch.Tensor], right: tuple[torch.Tensor, torch.Tensor], baseline: float) -> float:
    """Return the rescaled F1 of two texts' vectors; of a text without words F1 is 0 before it is rescaled."""
    (mine, counts), (theirs, wanted) = answer, right
    alike = mine @ theirs.T
    found = 0.0
    if counts.any() and wanted.any():
        precision = alike.max(dim=1).values[counts].mean().item()
        recall = alike.max(dim=0).values[wanted].mean().item()
        found = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return (found - baseline) / (1 - baseline)


def load(
    own: Mapping, files: Mapping[str, str], execution: Mapping
) -> Callable[[Sequence[tuple[str, str]]], list[dict]]:
    """Return the annotator. ``own``: model, revision, layer, baseline. Raises UserError for a model that is missing."""
    del files, execution
    embed = Embedder(downloaded(KEY, own["model"], own["revision"]), own["layer"])

    def annotate(pairs: Sequence[tuple[str, str]]) -> list[dict]:
        return [{"f1": f1(embed(answer), embed(right), own["baseline"])} for answer, right in pairs]

    return annotate
