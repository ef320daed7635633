"""Loading and writing models and runs in folders, including image tiling, tiny random models and adapters.

A run is a folder with a model, or an adapter of a base model, and the settings for its use in run.json. The
settings of how images are cut into tiles (``tiles`` and ``grid``) are written into the model's files, so that every
program does it in the same way. Only families with ``has_tiling`` and ``write_tiling`` have these settings.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForImageTextToText

from cxr.base.atomic import atomic_file
from cxr.base.engines import engine_module
from cxr.base.errors import UserError, refuse_unreadable
from cxr.base.seeds import stable_hash
from cxr.nets.hub import find_downloaded_model
from cxr.vlm.families.engine import FAMILIES, Family, load_family
from cxr.vlm.tokens import SEG, VIDEO, Tokens, small_tokenizer, special_tokens

ADAPTER = "adapter_config.json"  # peft's file that marks a folder as an adapter, not a model

PROCESSOR = "processor_config.json"
WEIGHT_ERRORS = (RuntimeError, SafetensorError)  # errors of weights that are damaged or of another model
SIDE_FILE_SUFFIXES = (".json", ".txt", ".jinja", ".model")  # suffixes of the files next to a model's weights


@dataclass(frozen=True)
class Loaded:
    """A model with its family and tokens."""

    model: nn.Module
    family: Family
    tokens: Tokens


def load_model(name: str, folder: str | Path, dtype: torch.dtype = torch.float32) -> Loaded:
    """Load a model of the family ``name`` from a folder. Raises UserError for another family or a missing tensor."""
    family = load_family(name, folder)
    tokens = Tokens.read(folder, family.frame)
    with refuse_unreadable(folder, f"{folder} holds no readable model", "download the model again", *WEIGHT_ERRORS):
        model, loading_info = AutoModelForImageTextToText.from_pretrained(
            str(folder), dtype=dtype, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    for fault in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if names := loading_info.get(fault):
            tensor_name = sorted(map(str, names))[0]
            raise UserError(f"{folder}: {fault.replace('_', ' ')}, such as {tensor_name}: give a whole {name} model")
    return Loaded(model.eval(), family, tokens)


def add_seg_token(loaded: Loaded, seed: int) -> Loaded:
    """Add the token [SEG] to a model, in an unused embedding row or in a new one that is initialized by ``seed``."""
    tokens, model = loaded.tokens.with_seg(), loaded.model
    if len(tokens.tokenizer) > model.get_input_embeddings().num_embeddings:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stable_hash(seed, SEG) % 2**63)
            model.resize_token_embeddings(len(tokens.tokenizer), mean_resizing=False)
    return replace(loaded, tokens=tokens)


def make_tiny(name: str, folder: str | Path, texts: Iterable[str], side: int, seed: int) -> None:
    """Write a small random model for images of ``side`` px, with a tokenizer built from the words in ``texts``."""
    module = engine_module(FAMILIES, name)
    frame = module.TEMPLATE
    tokenizer = small_tokenizer(texts, frame)
    marks = {role: getattr(frame, role).strip() for role in ("opening", "picture", "closing", "end")}
    marks |= {"video": VIDEO, "start": special_tokens(frame)[0]}
    ids = {role: tokenizer.convert_tokens_to_ids(mark) for role, mark in marks.items() if mark}
    ids["pad"] = tokenizer.pad_token_id
    config, processor = module.tiny(len(tokenizer), ids, side)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
        getattr(module, "init_weights", lambda model: None)(model)
    model.generation_config.eos_token_id = ids["end"]
    model.generation_config.pad_token_id = ids["pad"]
    Path(folder).mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _write_processor(name, model, Path(folder))


def base_folder(base: str | list[str], model: str, revision: str) -> str:
    """Return ``base``, or without it the folder of the downloaded ``model``, or "" if neither is named.
    Raises UserError if ``model`` is not downloaded."""
    if base:
        return base if isinstance(base, str) else base[0]
    if not model:
        return ""
    return find_downloaded_model("vlm.tuning.runs", model, revision)


RUN = "run.json"
"""File with the settings of a run for inference: family, convention, side, original and base. It also has system_prompt
if that is set, and the tiling of an adapter if it differs from the tiling of the base model."""
MODEL, ADAPTERS = "model", "adapter"  # folders of a run: a whole model, or a peft adapter for ``base``
SEGMENTER = "segmenter"  # folder of a run's segmenter, if it has one


def write_run(folder: Path, **facts: object) -> None:
    """Write the settings that :func:`load_run` needs in addition to the weights into the folder of a run."""
    _write_json(folder / RUN, facts)


def _write_json(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def read_run(folder: str | Path) -> dict:
    """Return the settings that :func:`write_run` wrote. Raises UserError if the folder does not have them."""
    path, remedy = Path(folder, RUN), "tune this run first, or name a tuned run"
    with refuse_unreadable(path, f"{folder} holds no run of vlm_tuning", remedy):
        return json.loads(path.read_text(encoding="utf-8"))


@contextmanager
def run_model(run: str | Path, base: str | Path = "") -> Iterator[Path]:
    """Yield the folder of the model of a run: its own model, or else ``base``, or else the base model that it names.
    If the tiling of a base model must change, the folder is temporary and links to the model's weights."""
    model_dir = Path(run, MODEL)
    if model_dir.is_dir():
        yield model_dir
        return
    facts = read_run(run)
    name, source, tiling = facts["family"], Path(base or facts["base"]), facts.get("tiling", {})
    if not needs_tiling(name, source, tiling):
        yield source
        return
    with TemporaryDirectory() as links:
        link_model(name, source, Path(links), tiling)
        yield Path(links)


def needs_tiling(name: str, folder: str | Path, tiling: Mapping) -> bool:
    """Return whether a model of the family ``name`` cuts images in another way than ``tiling``; {} allows any way."""
    return bool(tiling) and not engine_module(FAMILIES, name).has_tiling(Path(folder), **tiling)


def apply_tiling(name: str, folder: Path, tiling: Mapping) -> None:
    """Change the tiling of the model in a folder to ``tiling``. Nothing is written if both already agree."""
    if needs_tiling(name, folder, tiling):
        engine_module(FAMILIES, name).write_tiling(folder, **tiling)


def link_model(name: str, source: str | Path, folder: Path, tiling: Mapping) -> None:
    """Fill ``folder`` with links to the weights of the model in ``source`` and copies of its files; set the tiling."""
    for path in sorted(Path(source).iterdir()):
        if path.suffix in SIDE_FILE_SUFFIXES:
            (folder / path.name).write_bytes(path.read_bytes())
        else:
            (folder / path.name).symlink_to(path.resolve())
    apply_tiling(name, folder, tiling)


def load_run(folder: str | Path, base: str | Path = "", dtype: torch.dtype = torch.float32) -> Loaded:
    """Load a run's model with its adapter. ``base`` replaces the run's base model. Raises UserError for bad files."""
    facts, adapters = read_run(folder), Path(folder, ADAPTERS)
    with run_model(folder, base) as model:
        loaded = load_model(facts["family"], model, dtype)
    loaded = add_seg_token(loaded, 0) if has_segmenter(folder) else loaded
    loaded = replace(loaded, tokens=loaded.tokens.with_system(facts.get("system_prompt", "")))
    if not adapters.is_dir():
        return loaded
    from peft import PeftModel

    with refuse_unreadable(folder, f"{folder} holds no adapter that fits its model", "tune again", *WEIGHT_ERRORS):
        adapted_model = PeftModel.from_pretrained(loaded.model, str(adapters), is_trainable=False)
    return replace(loaded, model=adapted_model.eval())


def has_segmenter(folder: str | Path) -> bool:
    """Return whether a run has a segmenter, which predicts a mask for each [SEG] in its answers."""
    return Path(folder, SEGMENTER).is_dir()


def write_model(loaded: Loaded, name: str, folder: Path, published: bool = True) -> None:
    """Write a whole model of the family ``name``. If ``published``, its tensors are named as in published files."""
    loaded.model.save_pretrained(str(folder))
    loaded.family.processor.save_pretrained(str(folder))
    loaded.tokens.tokenizer.save_pretrained(str(folder))
    _write_processor(name, loaded.model, folder)
    published_name = getattr(engine_module(FAMILIES, name), "published_name", None)
    if published and published_name:
        _rename_tensors(folder, published_name)


def _rename_tensors(folder: Path, renamed: Callable[[str], str]) -> None:
    """Rename the tensors in a model's files and in their index. ``renamed`` returns the new name of a tensor."""
    for path in sorted(folder.glob("*.safetensors")):
        tensors = {renamed(name): value for name, value in load_file(path).items()}
        with atomic_file(path) as temporary_path:
            save_file(tensors, temporary_path, metadata={"format": "pt"})
    for path in folder.glob("*.safetensors.index.json"):
        index = json.loads(path.read_text(encoding="utf-8"))
        index["weight_map"] = {renamed(name): file for name, file in index["weight_map"].items()}
        _write_json(path, index)


def _write_processor(name: str, model: nn.Module, folder: Path) -> None:
    processor_config = getattr(engine_module(FAMILIES, name), "processor_config", None)
    path = folder / PROCESSOR
    if processor_config and not path.is_file():
        _write_json(path, processor_config(model.config))


def write_adapter(model: nn.Module, folder: Path) -> None:
    """Write the adapter of a peft model in peft's layout, with reproducible bytes."""
    model.save_pretrained(str(folder), save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # an empty template
    path = folder / ADAPTER
    config = json.loads(path.read_text(encoding="utf-8"))
    config = {name: sorted(value) if name == "target_modules" else value for name, value in config.items()}
    _write_json(path, config | {"base_model_name_or_path": ""})
