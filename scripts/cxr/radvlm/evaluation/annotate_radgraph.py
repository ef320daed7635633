"""The annotator ``radgraph``: RadGraph-XL entities of answers and references, and whether each has a relation.

The package radgraph gets a complete model folder and runs on the CPU. Otherwise the package would download weights and,
on a GPU, load a pickle.
"""

import json
import os
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from shutil import copyfile

from cxr.base.errors import UserError, out_of_memory
from cxr.nets.hub import find_downloaded_model
from cxr.radvlm.evaluation.answers import Annotate

METRIC = "radgraph_f1"
PAIRS = False
MODEL = "radgraph-xl"
PLACED = (
    "config.json", "weights.th", "vocabulary/radgraph-xl__ner_labels.txt",
    "vocabulary/radgraph-xl__relation_labels.txt",
)  # fmt: skip
KEY = "radvlm.evaluation.radgraph"
ENCODERS = (("dataset_reader", "token_indexers", "bert"), ("model", "embedder", "token_embedders", "bert"))
"""Paths in the model's configuration at which the BERT encoder is named."""
WRONG_MODEL_ERRORS = (
    RuntimeError, LookupError, TypeError, ValueError, AssertionError, OSError, ImportError, pickle.UnpicklingError,
)  # fmt: skip
"""Errors that radgraph, torch and transformers raise for files of another model.

ImportError is one of them: without tokenizer files, transformers tries another tokenizer, which needs protobuf.
"""
NO_GRAPH = "the model gave no graph"


def load(settings: Mapping, _files: Mapping[str, str], _execution: Mapping) -> Annotate:
    """Return the annotator. Raises UserError if the folder has another model or the encoder is missing."""
    # the imports below read these variables
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
            # the model takes one text at a time and fails on a text without words
            graphs = (
                find(list(text)).get("0") if radgraph_xl_preprocess_report(*text).split() else {"entities": {}}
                for text in texts
            )
            return list(map(to_annotation, graphs))

    return annotate


def to_annotation(graph: Mapping | None) -> dict:
    """Return {entities: [(tokens, label, whether it has a relation)]} of a graph, or {failure: reason} for None."""
    if graph is None:  # the package prints why
        return {"failure": NO_GRAPH}
    entities = graph["entities"].values()
    return {"entities": [[entity["tokens"], entity["label"], bool(entity["relations"])] for entity in entities]}


def make_model_folder(model: Path, encoder: str, folder: Path) -> None:
    """Make radgraph's model folder ``folder`` from the extracted archive ``model``. Its configuration names a local
    BERT: ``encoder`` (folder or hub id) or, if empty, the archive's. Raises UserError like :func:`load`."""
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        parts = [reduce(getitem, path, config) for path in ENCODERS]
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


def _wrong_model(folder: str, error: Exception) -> UserError:
    summary = " ".join(f"{type(error).__name__}: {error}".split())[:160]
    return UserError(f"{KEY}.model: {folder} does not hold {MODEL} ({summary}): extract {MODEL}.tar.gz there")
