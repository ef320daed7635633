"""Label the reports of one shard with a model, for the source own; engines are modules ``labels_<engine>``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from cxr.base.tables import read_lines, write_lines

Labeller = Callable[[Sequence[str]], list[dict[str, str]]]
"""Takes texts; returns {label: present, absent or uncertain} for each."""


@dataclass(frozen=True)
class LabelOptions:
    """engine: name of the engine; own: settings of the engine."""

    engine: str
    own: Mapping


def run_shard(*, reports: str, weights: str, labels: str, options: LabelOptions) -> None:
    """Write one line (study_id, labels) per study with a text; equal texts are labelled once.

    Raises UserError for missing weights or weights of another network.
    """
    texts = {line["study_id"]: line["section_text"] for line in read_lines(reports) if line["section_text"].strip()}
    label_texts: Labeller = import_module(f"cxr.radvlm.sources.labels_{options.engine}").load(weights, options.own)
    unique_texts = sorted(set(texts.values()))
    labels_by_text = dict(zip(unique_texts, label_texts(unique_texts), strict=True))
    write_lines(labels, [{"study_id": name, "labels": labels_by_text[text]} for name, text in sorted(texts.items())])
