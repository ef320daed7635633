"""The entities that RadGraph-XL finds in an answer and in its reference, each with whether it has a relation.

The package radgraph would download its weights, extract them unfiltered and, on a GPU, read them as a pickle that may
run code. Here it gets a folder of its own that is complete, so that it downloads nothing, and a CPU, where it reads
tensors alone.
"""

import json
import os
import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import copyfile

from cxr.base.errors import UserError, out_of_memory
from cxr.nets.hub import find_downloaded_model

METRIC = "radgraph_f1"
PAIRS = False
MODEL = "radgraph-xl"
PLACED = (
    "config.json", "weights.th", "vocabulary/radgraph-xl__ner_labels.txt",
    "vocabulary/radgraph-xl__relation_labels.txt",
)  # fmt: skip
KEY = "radvlm.evaluation.radgraph"
ENCODERS = (
    ("dataset_reader", "token_indexers", "bert"),
    ("model", "embedder", "token_embedders", "bert"),
)  # fmt: skip
"""Where the configuration names the BERT whose tokenizer and sizes it takes."""
WRONG_MODEL_ERRORS = (
    RuntimeError, LookupError, TypeError, ValueError, AssertionError, OSError, ImportError, pickle.UnpicklingError,
)  # fmt: skip
"""What the package, torch and transformers raise for files that are not such a model's.

ImportError: without a tokenizer's files, transformers looks for one of another kind, which needs protobuf.
"""
NO_GRAPH = "the model gave no graph"


def load(
    settings: Mapping, files: Mapping[str, str], execution: Mapping
) -> Callable[[Sequence[tuple[str]]], list[dict]]:
    """Return the annotator.

    ``settings``: model, the folder of PLACED, and encoder, a folder or id of its BERT, or empty.
    Raises UserError for a folder that holds another model, and for an encoder that is not on this machine.
    """
    del files, execution
    # set before the imports, which read them
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    import torch
    from radgraph import RadGraph
    from radgraph.utils import radgraph_xl_preprocess_report

    with tempfile.TemporaryDirectory() as folder:
        make_model_folder(Path(settings["model"]), settings["encoder"], Path(folder) / MODEL)
        try:
            find = RadGraph(model_type=MODEL, model_cache_dir=folder, cuda=-1)
        except WRONG_MODEL_ERRORS as error:
            if out_of_memory(error) or getattr(error, "errno", None):
                raise
            raise _wrong_model(settings["model"], error) from None

    def annotate(texts: Sequence[tuple[str]]) -> list[dict]:
        with torch.inference_mode():
            # the model takes one text at a time; it does not take one without a word
            return [
                to_annotation(find([text]).get("0"))
                if radgraph_xl_preprocess_report(text).split()
                else {"entities": []}
                for (text,) in texts
            ]

    return annotate


def to_annotation(graph: Mapping | None) -> dict:
    """Return the annotation of a graph in the form of RadGraph's files: {entities: {number: {tokens, label, …}}}."""
    if graph is None:  # the package prints why
        return {"failure": NO_GRAPH}
    return {
        "entities": [
            [entity["tokens"], entity["label"], bool(entity["relations"])] for entity in graph["entities"].values()
        ]
    }


def make_model_folder(model: Path, encoder: str, folder: Path) -> None:
    """Make a folder of the model whose configuration names a BERT on this machine; the package locks files in it.

    Raises UserError.
    """
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        parts = [_lookup(config, path) for path in ENCODERS]
        bert = find_downloaded_model(KEY, encoder or parts[0]["model_name"], "", "encoder")
    except (ValueError, KeyError, TypeError) as error:
        raise _wrong_model(str(model), error) from None
    for part in parts:
        part["model_name"] = bert
    (folder / "vocabulary").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for path in (model / "vocabulary").iterdir():
        if path.suffix == ".txt":
            copyfile(path, folder / "vocabulary" / path.name)
    (folder / "weights.th").symlink_to((model / "weights.th").resolve())


def _lookup(config: Mapping, path: Sequence[str]):
    for name in path:
        config = config[name]
    return config


def _wrong_model(folder: str, error: Exception) -> UserError:
    summary = " ".join(f"{type(error).__name__}: {error}".split())[:160]
    return UserError(f"{KEY}.model: {folder} does not hold {MODEL} ({summary}): extract {MODEL}.tar.gz there")
