"""Labels of the reports of one shard by a model, for the source own: one module ``labels_<engine>`` each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from cxr.base.tables import read_lines, write_lines

Labeller = Callable[[Sequence[str]], list[dict[str, str]]]
"""Takes texts; returns {label: present, absent or uncertain} of each."""


@dataclass(frozen=True)
class LabelOptions:
    """engine: name of the engine; own: its settings."""

    engine: str
    own: Mapping


def run_shard(*, reports: str, weights: str, labels: str, options: LabelOptions) -> None:
    """Write the labels of each study, a line each: study_id, labels. A study without a text has no line.

    Equal texts are read once. Raises UserError for weights that are missing or another net's.
    """
    texts = {line["study_id"]: line["section_text"] for line in read_lines(reports) if line["section_text"].strip()}
    read: Labeller = import_module(f"cxr.radvlm.sources.labels_{options.engine}").load(weights, options.own)
    unique_texts = sorted(set(texts.values()))
    labels_by_text = dict(zip(unique_texts, read(unique_texts), strict=True))
    write_lines(labels, [{"study_id": name, "labels": labels_by_text[text]} for name, text in sorted(texts.items())])
