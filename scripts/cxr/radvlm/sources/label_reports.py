"""Label the reports of one shard with CheXbert, for the source own (``radvlm.sources.labels: chexbert``)."""

from cxr.base.tables import read_lines, write_lines
from cxr.radvlm.chexbert import load_labeller


def run_shard(*, reports: str, weights: str, labels: str, model: str, revision: str) -> None:
    """Write one line (study_id, labels) per study with a text; equal texts are labelled once.

    ``model``, ``revision``: of the section ``radvlm.chexbert``. Raises UserError for missing weights or weights of
    another network.
    """
    texts = {line["study_id"]: line["section_text"] for line in read_lines(reports) if line["section_text"].strip()}
    unique_texts = sorted(set(texts.values()))
    labels_by_text = dict(zip(unique_texts, load_labeller(weights, model, revision)(unique_texts), strict=True))
    write_lines(labels, [{"study_id": name, "labels": labels_by_text[text]} for name, text in sorted(texts.items())])
