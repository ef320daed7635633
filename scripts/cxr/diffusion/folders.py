"""Load models from folders in Stable Diffusion's layout: ``config.json`` and weights as safetensors, in one file or
several, in one or more number types. Only known classes and exactly matching weights are accepted. No code from a
folder is run, and no pickle is read."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import diffusers
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.faults import is_not_from_input
from cxr.nets.tensors import fill_net

NET_CLASSES = {"unet": "UNet2DConditionModel", "vae": "AutoencoderKL"}
TEXT_CLASSES = {
    "BertModel": transformers.BertModel,
    # a subclass with additional heads, which are not needed for text states
    "CXRBertModel": transformers.BertModel,
    "CLIPTextModel": transformers.CLIPTextModel,
}
TOKENIZER_CLASSES = {
    transformers.BertModel: (transformers.BertTokenizer, (("tokenizer.json",), ("vocab.txt",))),
    transformers.CLIPTextModel: (transformers.CLIPTokenizer, (("tokenizer.json",), ("vocab.json", "merges.txt"))),
}
"""{text encoder: (its tokenizer, alternative sets of the tokenizer's files)}; one of the sets must be complete."""
UNUSED_PREFIXES = ("cls.", "cls_projection_head.", "pooler.")  # BERT tensors that text states do not need
OLD_NAMES = {".query.": ".to_q.", ".key.": ".to_k.", ".value.": ".to_v.", ".proj_attn.": ".to_out.0."}
"""{old name: new name} of a VAE's attention layers; files from before 2023 have the old names."""
WEIGHT_FILE = re.compile(r"(diffusion_pytorch_model|model)(?:\.(fp16|bf16))?(?:-\d{5}-of-(\d{5}))?\.safetensors")
NOISE_KEYS = (
    "num_train_timesteps", "beta_start", "beta_end", "beta_schedule", "trained_betas", "rescale_betas_zero_snr",
    "prediction_type",
)  # fmt: skip
"""Keys of a scheduler's configuration that belong to the model, not to a sampling method."""
RADEDIT_NOISE = {"beta_schedule": "linear", "prediction_type": "epsilon"}  # noise schedule of RadEdit, as published
RADEDIT_TOKENS = 128  # length to which RadEdit's prompts are padded


class Layout(NamedTuple):
    """Folders of a diffusion model's parts, class of its text encoder, and its noise schedule."""

    unet: Path
    vae: Path
    text: Path
    tokenizer: Path
    text_class: str
    noise: dict  # configuration of the noise schedule, see :data:`NOISE_KEYS`
    tokens: int | None  # length of a prompt in tokens; None for the tokenizer's default
    remedy: Callable[[Path], str]  # function that returns the remedy for a faulty folder, for error messages


def make_radedit_layout(files: dict[str, str]) -> Layout:
    """Return the layout of RadEdit's published parts. ``files``: {radedit, sdxl_vae, biovil_t: folder}."""
    unet, vae, text = (Path(files[name]) for name in ("radedit", "sdxl_vae", "biovil_t"))

    def remedy(folder: Path) -> str:
        broken = unet if folder == unet / "unet" else folder
        return f"delete {broken} and run snakemake weights again (docs/how-to/models.md)"

    return Layout(unet / "unet", vae, text, text, "CXRBertModel", RADEDIT_NOISE, RADEDIT_TOKENS, remedy)


def read_stable_diffusion_layout(folder: Path, key: str) -> Layout:
    """Return the layout of a folder with ``model_index.json``. ``key``: setting that names the folder, for messages.
    Raises UserError if a part has a class that is not supported."""

    def remedy(_: Path) -> str:
        return f"correct the folder or {key} (docs/how-to/models.md)"

    index = read_json(folder / "model_index.json", remedy(folder))
    texts, tokenizers = list(TEXT_CLASSES), ["BertTokenizer", "BertTokenizerFast", "CXRBertTokenizer"]
    tokenizers += ["CLIPTokenizer", "CLIPTokenizerFast"]
    allowed = {part: [name] for part, name in NET_CLASSES.items()} | {"text_encoder": texts, "tokenizer": tokenizers}
    for part, names in allowed.items():
        entry = index.get(part)
        class_name = entry[1] if isinstance(entry, list) and len(entry) == 2 else None
        if class_name not in names:
            problem = f"{folder / 'model_index.json'} names {class_name} for {part}"
            raise UserError(f"{problem}, and only {' or '.join(names)} can be used: {remedy(folder)}")
    parts = (folder / name for name in ("unet", "vae", "text_encoder", "tokenizer"))
    config = read_json(folder / "scheduler" / "scheduler_config.json", remedy(folder))
    noise = {key: config[key] for key in NOISE_KEYS if key in config}
    return Layout(*parts, index["text_encoder"][1], noise, None, remedy)


def read_json(path: Path, remedy: str) -> dict:
    """Read a JSON object. Raises UserError, which ends with ``remedy``, if the file is missing or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        refuse_machine_fault(path, error)
        raise UserError(f"there is no file {path}: {remedy}") from None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UserError(f"{path} is damaged: {remedy}")
    return value


def find_weight_files(folder: Path, remedy: str) -> list[Path]:
    """Return the safetensors files in a folder that together hold a net's weights. Of several complete sets,
    float32 is preferred to bf16, and bf16 to fp16. Raises UserError, which ends with ``remedy``, if there is none."""
    paths_by_set: dict[tuple[int, int, str], list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if match := WEIGHT_FILE.fullmatch(path.name):
            kind, count = match[2] or "", int(match[3] or 1)
            paths_by_set.setdefault((("", "bf16", "fp16").index(kind), count, match[1]), []).append(path)
    # a folder may hold the same weights both as one file and in shards
    complete_sets = [files for (_, count, _), files in sorted(paths_by_set.items()) if len(files) == count]
    if not complete_sets:
        some = "only some of its weights" if paths_by_set else "no weights as safetensors"
        raise UserError(f"{folder} holds {some}: {remedy}")
    return complete_sets[0]


def load_tensors(folder: Path, remedy: str) -> dict[str, torch.Tensor]:
    """Return {name: tensor} of a folder. Raises UserError, ending with ``remedy``, for a missing or damaged file."""
    tensors = {}
    for path in find_weight_files(folder, remedy):
        try:
            tensors |= load_file(path)
        except (SafetensorError, OSError) as error:
            refuse_machine_fault(path, error)
            raise UserError(f"{path} is damaged or not a safetensors file: {remedy}") from None
    return tensors


@contextmanager
def refuse_unusable(path: Path, problem: str, remedy: str) -> Iterator[None]:
    """Raise UserError "<problem> (<error class>): <remedy>" if a model's files cause an error inside the context."""
    try:
        yield
    except Exception as error:
        refuse_machine_fault(path, error)
        if is_not_from_input(error):
            raise
        raise UserError(f"{problem} ({type(error).__name__}): {remedy}") from None


def load_net(folder: Path, part: str, dtype: torch.dtype, remedy: str) -> torch.nn.Module:
    """Load the U-Net (``part`` is "unet") or autoencoder ("vae") to the CPU. ``remedy``: end of error messages."""
    config = read_json(folder / "config.json", remedy)
    name = NET_CLASSES[part]
    if config.get("_class_name") != name:
        raise UserError(f"{folder / 'config.json'} describes a {config.get('_class_name')}, not a {name}: {remedy}")
    # on the device meta, because initializing random weights would take longer than reading the file
    with refuse_unusable(folder, f"{folder / 'config.json'} does not define a {name}", remedy), torch.device("meta"):
        module = getattr(diffusers, name).from_config(config)
    tensors = load_tensors(folder, remedy)
    if part == "vae":
        for old, new in OLD_NAMES.items():
            tensors = {name.replace(old, new): value for name, value in tensors.items()}
    fill_net(module, {name: value.to(dtype) for name, value in tensors.items()}, folder, remedy)
    return module.eval()


def load_text_net(folder: Path, class_name: str, remedy: str) -> torch.nn.Module:
    """Load the text encoder of the class ``class_name``, float32, to the CPU. ``remedy``: end of error messages."""
    kind = TEXT_CLASSES[class_name]
    config = read_json(folder / "config.json", remedy)
    class_names = config.get("architectures") or [class_name]
    if not isinstance(class_names, list) or not any(
        text_class is kind and name in class_names for name, text_class in TEXT_CLASSES.items()
    ):
        described_class = class_names[0] if isinstance(class_names, list) else class_names
        raise UserError(f"{folder / 'config.json'} describes a {described_class}, not a {class_name}: {remedy}")
    bare = {key: value for key, value in config.items() if key not in ("model_type", "auto_map", "architectures")}
    options = {"add_pooling_layer": False} if kind is transformers.BertModel else {}
    with refuse_unusable(folder, f"{folder / 'config.json'} does not define a {class_name}", remedy):
        module = kind(kind.config_class.from_dict(bare), **options)
    # in the file of a larger model, the encoder's tensors have a prefix; old files also store position ids
    tensors = {re.sub(r"^(bert|text_model)\.", "", name): value for name, value in load_tensors(folder, remedy).items()}
    text_tensors = {
        name: value.float()
        for name, value in tensors.items()
        if not name.startswith(UNUSED_PREFIXES) and not name.endswith(".position_ids")
    }
    fill_net(module, text_tensors, folder, remedy)
    return module.eval()


def load_tokenizer(folder: Path, text: torch.nn.Module, remedy: str) -> Callable:
    """Load the tokenizer of the encoder ``text``. Raises UserError if a file is missing or the vocabulary too large."""
    kind, choices = next(value for text_class, value in TOKENIZER_CLASSES.items() if isinstance(text, text_class))
    # if its vocabulary file is missing, the class returns an empty tokenizer
    if not any(all((folder / name).is_file() for name in names) for names in choices):
        file_names = " or ".join(" and ".join(names) for names in choices)
        raise UserError(f"{folder} lacks the tokenizer's {file_names}: {remedy}")
    with refuse_unusable(folder, f"{folder} holds no {kind.__name__}", remedy):
        tokenizer = kind.from_pretrained(folder, local_files_only=True)
    if len(tokenizer) > (words := text.config.vocab_size):
        raise UserError(f"{folder} holds a tokenizer of {len(tokenizer)} words for a text encoder of {words}: {remedy}")
    return tokenizer
