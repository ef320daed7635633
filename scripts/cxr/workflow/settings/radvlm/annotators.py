"""Settings of the models that annotate reports for RadVLM."""

from cxr.workflow.settings.base import AUTHORS, Section, key


class Chexbert(Section):
    """CheXbert, whose weights are placed as `weights/chexbert.pth`."""

    model: str = key(
        "google-bert/bert-base-uncased",
        "Folder, or id on the Hugging Face hub, of the BERT whose configuration and tokenizer CheXbert has.",
        source=AUTHORS,
    )
    revision: str = key("", "Its revision on the hub; empty: what is there.")
    batch: int = key(32, "Reports at a time.", unit="reports", ge=1, le=4096)
