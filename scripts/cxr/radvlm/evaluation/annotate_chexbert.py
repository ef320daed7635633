"""The labels of CheXbert, of an answer and of its reference each."""

from collections.abc import Callable, Mapping, Sequence

from cxr.radvlm.chexbert import labeller
from cxr.radvlm.labels import PRESENT, UNCERTAIN

METRIC = "chexbert_f1"
PAIRS = False
INPUTS = {"weights": "results/weights/chexbert.safetensors"}


def load(own: Mapping, files: Mapping[str, str], execution: Mapping) -> Callable[[Sequence[tuple[str]]], list[dict]]:
    """Return the annotator. ``own``: the section ``radvlm.chexbert``, whose ``uncertain`` says what that counts as."""
    del execution
    read = labeller(files["weights"], own["model"], own["revision"])
    counted = (PRESENT, UNCERTAIN) if own["uncertain"] == PRESENT else (PRESENT,)

    def annotate(texts: Sequence[tuple[str]]) -> list[dict]:
        found = read([text for (text,) in texts])
        return [{"labels": [name for name, value in one.items() if value in counted]} for one in found]

    return annotate
