"""CheXbert: a BERT report labeller with one head per label (14 labels)."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerBase

from cxr.base.errors import refuse_unreadable
from cxr.base.tables import read_lines, write_lines
from cxr.nets.hub import find_downloaded_model
from cxr.nets.tensors import load_strict
from cxr.radvlm.labels import ABSENT, PRESENT, UNCERTAIN

KEY = "radvlm.chexbert"
NO_FINDING = "No Finding"
HEADS = (
    "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema", "Consolidation", "Pneumonia",
    "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture", "Support Devices", NO_FINDING,
)  # fmt: skip
"""Label of each head, in the order of the network's outputs."""
CLASSES = (None, PRESENT, ABSENT, UNCERTAIN)  # label value of each class (None: blank); No Finding has only two


class CheXbert(torch.nn.Module):
    """CheXbert's network; its parameter names match the published weights."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.bert = BertModel(config)
        sizes = [2 if name == NO_FINDING else len(CLASSES) for name in HEADS]
        self.linear_heads = torch.nn.ModuleList(torch.nn.Linear(config.hidden_size, size) for size in sizes)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        """Return the logits of each head, (N, classes), for token ids (N, T) and their attention mask."""
        first = self.bert(ids, attention_mask=mask).last_hidden_state[:, 0]
        return [head(first) for head in self.linear_heads]


class Labeller:
    """Labels texts one at a time: batching is no faster on a CPU, and padding would change the results."""

    def __init__(self, net: CheXbert, words: PreTrainedTokenizerBase):
        self.net, self.words = net.eval(), words
        self.longest = net.bert.config.max_position_embeddings

    def __call__(self, texts: Sequence[str]) -> list[dict[str, str]]:
        """Return {label: value} of each text; blank labels are omitted, except No Finding; long texts are truncated."""
        report_labels = []
        for text in texts:
            encoded = self.words(" ".join(text.split()), truncation=True, max_length=self.longest, return_tensors="pt")
            with torch.inference_mode():
                classes = [int(logits.argmax()) for logits in self.net(encoded["input_ids"], encoded["attention_mask"])]
            labels = {name: CLASSES[index] for name, index in zip(HEADS, classes, strict=True) if CLASSES[index]}
            report_labels.append(labels | {NO_FINDING: labels.get(NO_FINDING, ABSENT)})
        return report_labels


def load_labeller(weights: str | Path, model: str, revision: str) -> Labeller:
    """Load CheXbert; ``model``: folder or hub id of its BERT. Raises UserError for missing or unsuitable weights."""
    folder = find_downloaded_model(KEY, model, revision)
    problem, remedy = f"{KEY}.model: {folder} lacks config.json or a tokenizer", "give bert-base-uncased's folder"
    with refuse_unreadable(folder, problem, remedy):
        config = BertConfig.from_pretrained(folder, local_files_only=True)
        words = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    net = CheXbert(config)
    load_strict(net, weights)
    return Labeller(net, words)


def label_shard(*, reports: str, weights: str, labels: str, model: str, revision: str) -> None:
    """Label each study that has a text in a shard; equal texts are labelled once. Raises UserError for bad weights."""
    texts = {line["study_id"]: line["section_text"] for line in read_lines(reports) if line["section_text"].strip()}
    unique_texts = sorted(set(texts.values()))
    labels_by_text = dict(zip(unique_texts, load_labeller(weights, model, revision)(unique_texts), strict=True))
    write_lines(labels, [{"study_id": name, "labels": labels_by_text[text]} for name, text in sorted(texts.items())])
