"""The annotator ``chexbert``: CheXbert labels of answers and references."""

from collections.abc import Mapping, Sequence

from cxr.radvlm.chexbert import load_labeller
from cxr.radvlm.evaluation.answers import Annotate
from cxr.radvlm.labels import ABSENT

METRIC = "chexbert_f1"
PAIRS = False
INPUTS = {"weights": "results/weights/chexbert.safetensors"}


def load(settings: Mapping, files: Mapping[str, str], _execution: Mapping) -> Annotate:
    """Return the annotator. It counts uncertain labels as present, as in the public code of this metric."""
    label_texts = load_labeller(files["weights"], settings["model"], settings["revision"])

    def annotate(texts: Sequence[tuple[str]]) -> list[dict]:
        report_labels = label_texts([text for (text,) in texts])
        return [{"labels": [name for name, value in labels.items() if value != ABSENT]} for labels in report_labels]

    return annotate
