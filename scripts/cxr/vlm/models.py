"""Models in folders: reading them whole, making tiny random ones, adapters."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForImageTextToText

from cxr.base.atomic import atomic
from cxr.base.engines import engine_module
from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.seeds import stable_hash
from cxr.nets.hub import find_downloaded_model
from cxr.vlm.families.engine import Family, load_family
from cxr.vlm.tiles import linked
from cxr.vlm.tokens import SEG, VIDEO, Tokens, marks_of, small_tokenizer

ADAPTER = "adapter_config.json"
"""A file of peft's layout: a folder with it holds an adapter, not a model."""

PROCESSOR = "processor_config.json"


@dataclass(frozen=True)
class Loaded:
    """A model with its family and tokens."""

    model: nn.Module
    family: Family
    tokens: Tokens


def load_model(name: str, folder: str | Path, dtype: torch.dtype = torch.float32) -> Loaded:
    """Return the model of the family ``name`` in a folder, in evaluation mode.

    Raises UserError for a folder of another family, or one that lacks a tensor: a missing one would be random.
    """
    family = load_family(name, folder)
    tokens = Tokens.read(folder, family.frame)
    try:
        model, loading_info = AutoModelForImageTextToText.from_pretrained(
            str(folder), dtype=dtype, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        refuse_machine_fault(folder, error)
        first = str(error).strip().splitlines()[0]
        raise UserError(f"{folder} holds no model that can be read ({first[:160]}): fetch it again") from None
    for fault in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if names := loading_info.get(fault):
            tensor_name = sorted(map(str, names))[0]
            raise UserError(f"{folder}: {fault.replace('_', ' ')}, such as {tensor_name}: it is no whole {name} model")
    return Loaded(model.eval(), family, tokens)


def with_seg(loaded: Loaded, seed: int) -> Loaded:
    """Return a model whose vocabulary has [SEG]; a new row of its embedding is drawn by ``seed``.

    A row that the checkpoint leaves without a token is taken before one is added.
    """
    tokens, model = loaded.tokens.with_seg(), loaded.model
    if len(tokens.tokenizer) > model.get_input_embeddings().num_embeddings:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stable_hash(seed, SEG) % 2**63)
            model.resize_token_embeddings(len(tokens.tokenizer), mean_resizing=False)
    return replace(loaded, tokens=tokens)


def with_system(loaded: Loaded, prompt: str) -> Loaded:
    """Return a model that is told another system prompt; "" leaves its makers'."""
    return replace(loaded, tokens=loaded.tokens.with_system(prompt))


def make_tiny(
    name: str, folder: str | Path, texts: Iterable[str], side: int, seed: int, sizes: Mapping[str, int]
) -> None:
    """Write a small random model of a family's real classes into a folder, with a tokenizer made of ``texts``.

    ``sizes``: what the family names in ``SIZES``; others are ignored.
    """
    module = engine_module("cxr.vlm.families", name)
    frame = module.FRAME
    tokenizer = small_tokenizer(texts, frame)
    id_by_mark = {mark: tokenizer.convert_tokens_to_ids(mark) for mark in [*marks_of(frame), VIDEO]}
    roles = {role: getattr(frame, role).strip() for role in ("opening", "picture", "closing", "end")}
    marks = {role: id_by_mark[mark] for role, mark in roles.items() if mark}
    ids = marks | {"pad": tokenizer.pad_token_id, "video": id_by_mark[VIDEO], "start": id_by_mark[marks_of(frame)[0]]}
    family_sizes = {size: sizes[size] for size in getattr(module, "SIZES", ())}
    config, processor = module.tiny(len(tokenizer), ids, side, **family_sizes)
    before = torch.random.get_rng_state()
    torch.manual_seed(seed)
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    getattr(module, "begin", lambda model: None)(model)
    torch.random.set_rng_state(before)
    model.generation_config.eos_token_id = ids["end"]
    model.generation_config.pad_token_id = ids["pad"]
    Path(folder).mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _write_processor(name, model, Path(folder))


def base_of(base: str | list[str], model: str, revision: str) -> str:
    """Return the folder that a model starts from: the one that is given, or that of a model downloaded before.

    "" where there is neither. Raises UserError, which says how to download it.
    """
    if base:
        return base if isinstance(base, str) else base[0]
    if not model:
        return ""
    return find_downloaded_model("vlm.tuning.runs", model, revision)


RUN = "run.json"
"""File in a run's folder that says how its model is asked: family, convention, side, original, wording, base, and
system_prompt if one is set; of an adapter also tiling, where the base cuts pictures into tiles in another way.
"""
MODEL, ADAPTERS = "model", "adapter"
"""Folders of a run: its whole model, or an adapter in peft's layout for the model ``base``."""
SEGMENTER = "segmenter"
"""Folder of a run's segmenter, where it has one."""


def write_run(folder: Path, **facts: object) -> None:
    """Write the facts that :func:`load_run` needs beside the weights."""
    (folder / RUN).write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def read_run(folder: str | Path) -> dict:
    """Return what :func:`write_run` wrote. Raises UserError for a folder without it."""
    try:
        return json.loads(Path(folder, RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        refuse_machine_fault(Path(folder, RUN), error)
        raise UserError(f"{folder} holds no run of vlm_tuning: tune or name one in vlm.tuning.runs") from None


@contextmanager
def model_of(run: str | Path, base: str | Path = "") -> Iterator[Path]:
    """Yield the folder of a run's own model, or of the one that it was made from: of an adapter, or asked as it is.

    ``base``: where that one lies, if not where the run's file says. The folder may be one of links, which is removed
    afterwards.
    """
    model_dir = Path(run, MODEL)
    if model_dir.is_dir():
        yield model_dir
        return
    facts = read_run(run)
    with linked(facts["family"], Path(base or facts["base"]), facts.get("tiling", {})) as folder:
        yield folder


def load_run(folder: str | Path, base: str | Path = "", dtype: torch.dtype = torch.float32) -> Loaded:
    """Return the model of a run, with its adapter. ``base``: as of :func:`model_of`.

    Raises UserError for a run that is not whole.
    """
    facts = read_run(folder)
    adapted = Path(folder, ADAPTERS).is_dir()
    with model_of(folder, base) as model:
        loaded = load_model(facts["family"], model, dtype)
    loaded = with_seg(loaded, 0) if tells_masks(folder) else loaded
    loaded = with_system(loaded, facts.get("system_prompt", ""))
    if not adapted:
        return loaded
    from peft import PeftModel

    try:
        model = PeftModel.from_pretrained(loaded.model, str(Path(folder, ADAPTERS)), is_trainable=False)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        refuse_machine_fault(folder, error)
        first = str(error).strip().splitlines()[0]
        raise UserError(f"{folder} holds no adapter that fits its model ({first[:160]}): tune it again") from None
    return Loaded(model.eval(), loaded.family, loaded.tokens)


def tells_masks(folder: str | Path) -> bool:
    """Return whether a run has a segmenter, so that it gives a mask for each [SEG] of its answers."""
    return Path(folder, SEGMENTER).is_dir()


def write_model(loaded: Loaded, name: str, folder: Path, names: str) -> None:
    """Write a whole model of the family ``name``. ``names`` of its tensors: published, the makers', or library."""
    loaded.model.save_pretrained(str(folder))
    loaded.family.processor.save_pretrained(str(folder))
    loaded.tokens.tokenizer.save_pretrained(str(folder))
    _write_processor(name, loaded.model, folder)
    published = getattr(engine_module("cxr.vlm.families", name), "published", None)
    if names == "published" and published:
        _rename(folder, published)


def _write_processor(name: str, model: nn.Module, folder: Path) -> None:
    processor_config = getattr(engine_module("cxr.vlm.families", name), "processor_config", None)
    path = folder / PROCESSOR
    if processor_config and not path.is_file():
        path.write_text(json.dumps(processor_config(model.config), indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _rename(folder: Path, renamed: Callable[[str], str]) -> None:
    """Rename the tensors of a model's files, and in the index of several."""
    for path in sorted(folder.glob("*.safetensors")):
        tensors = {renamed(name): value for name, value in load_file(path).items()}
        with atomic(path) as temporary_path:
            save_file(tensors, temporary_path, metadata={"format": "pt"})
    for path in folder.glob("*.safetensors.index.json"):
        index = json.loads(path.read_text(encoding="utf-8"))
        index["weight_map"] = {renamed(name): file for name, file in index["weight_map"].items()}
        path.write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_adapter(model: nn.Module, folder: Path) -> None:
    """Write a peft model's adapter in peft's layout, the same bytes each time."""
    model.save_pretrained(str(folder), save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # a form without answers
    path = folder / ADAPTER
    config = json.loads(path.read_text(encoding="utf-8"))
    config = {name: sorted(value) if name == "target_modules" else value for name, value in config.items()}
    config["base_model_name_or_path"] = ""
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
