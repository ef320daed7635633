"""RadGraph-XL of random weights in the published layout (config.json, weights.th, vocabulary/), its BERT beside it."""

import json
from pathlib import Path

import tiny_chexbert

LABELS = (
    "Anatomy::definitely present", "Observation::definitely absent", "Observation::definitely present",
    "Observation::uncertain",
)  # fmt: skip
RELATIONS = ("located_at", "modify", "suggestive_of")
SIZES = {
    "feature_size": 4, "max_span_width": 2, "target_task": "relation",
    "feedforward_params": {"num_layers": 2, "hidden_dims": 8, "dropout": 0.4},
    "loss_weights": {"ner": 0.2, "relation": 1.0, "coref": 0.0, "events": 0.0},
    "modules": {
        "ner": {}, "relation": {"spans_per_word": 0.5}, "coref": {"spans_per_word": 0.3, "max_antecedents": 10},
        "events": {
            "trigger_spans_per_word": 0.3, "argument_spans_per_word": 0.8,
            "loss_weights": {"trigger": 0.2, "arguments": 1.0},
        },
    },
}  # fmt: skip


def config(bert: str) -> dict:
    """Return the configuration, which names the BERT twice."""
    told = {"type": "pretrained_transformer_mismatched", "model_name": bert, "max_length": 20}
    return {
        "dataset_reader": {"type": "dygie", "max_span_width": 2, "token_indexers": {"bert": told}},
        "model": {
            "type": "dygie", "embedder": {"token_embedders": {"bert": told}}, "initializer": {},
            "module_initializer": {}, **SIZES,
        },
    }  # fmt: skip


def layout(folder: Path, bert: str | None = None) -> Path:
    """Write all but the weights; without ``bert`` the configuration names a BERT that is written beside the folder."""
    words = tiny_chexbert.words(folder.parent / "bert")
    (folder / "vocabulary").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config(bert or str(words))))
    for name, lines in (("ner", LABELS), ("relation", RELATIONS)):
        # the first line is the label of what is none
        (folder / "vocabulary" / f"radgraph-xl__{name}_labels.txt").write_text("\n".join(["", *lines]))
    (folder / "vocabulary" / "non_padded_namespaces.txt").write_text("*labels\n*tags\n")
    return folder
