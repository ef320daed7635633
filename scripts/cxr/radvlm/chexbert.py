"""CheXbert, a BERT model that labels reports. It has one output head for each of the 14 labels."""

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
"""Label of each output head, in the order of the network's outputs."""
CLASSES = (None, PRESENT, ABSENT, UNCERTAIN)  # value of each class; None: not mentioned; NO_FINDING has the first two


class CheXbert(torch.nn.Module):
    """The network of CheXbert. Its parameters are named as in the published weights."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.bert = BertModel(config)
        sizes = [2 if name == NO_FINDING else len(CLASSES) for name in HEADS]
        self.linear_heads = torch.nn.ModuleList(torch.nn.Linear(config.hidden_size, size) for size in sizes)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        """Return one tensor of logits (N, classes) per head for token ids (N, T) and their attention mask (N, T)."""
        first = self.bert(ids, attention_mask=mask).last_hidden_state[:, 0]
        return [head(first) for head in self.linear_heads]


class Labeller:
    """Labels texts with CheXbert, one at a time. Batches are no faster on a CPU, and their padding changes results."""

    def __init__(self, net: CheXbert, words: PreTrainedTokenizerBase):
        self.net, self.words = net.eval(), words
        self.longest = net.bert.config.max_position_embeddings

    def __call__(self, texts: Sequence[str]) -> list[dict[str, str]]:
        """Return {label: present, absent or uncertain} for each text, without labels that the text does not mention.
        The label "No Finding" always has a value. A text that is longer than the model's input is truncated."""
        report_labels = []
        for text in texts:
            encoded = self.words(" ".join(text.split()), truncation=True, max_length=self.longest, return_tensors="pt")
            with torch.inference_mode():
                classes = [int(logits.argmax()) for logits in self.net(encoded["input_ids"], encoded["attention_mask"])]
            labels = {name: CLASSES[index] for name, index in zip(HEADS, classes, strict=True) if CLASSES[index]}
            report_labels.append(labels | {NO_FINDING: labels.get(NO_FINDING, ABSENT)})
        return report_labels


def load_labeller(weights: str | Path, model: str, revision: str) -> Labeller:
    """Load CheXbert from its file ``weights`` and the folder or hub id of its BERT, ``model``. Raises UserError for
    missing or unsuitable files."""
    folder = find_downloaded_model(KEY, model, revision)
    problem, remedy = f"{KEY}.model: {folder} lacks config.json or a tokenizer", "give bert-base-uncased's folder"
    with refuse_unreadable(folder, problem, remedy):
        config = BertConfig.from_pretrained(folder, local_files_only=True)
        words = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    net = CheXbert(config)
    load_strict(net, weights)
    return Labeller(net, words)


def label_shard(*, reports: str, weights: str, labels: str, model: str, revision: str) -> None:
    """Label the studies in the file ``reports`` with CheXbert, and write the file ``labels``. Studies without text are
    skipped. The other arguments and the errors are those of :func:`load_labeller`."""
    texts = {line["study_id"]: line["section_text"] for line in read_lines(reports) if line["section_text"].strip()}
    unique_texts = sorted(set(texts.values()))
    labels_by_text = dict(zip(unique_texts, load_labeller(weights, model, revision)(unique_texts), strict=True))
    write_lines(labels, [{"study_id": name, "labels": labels_by_text[text]} for name, text in sorted(texts.items())])
