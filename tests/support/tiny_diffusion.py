"""Write a small latent diffusion model of the true classes, in the file formats of the published models."""

import json
from pathlib import Path

import torch
from diffusers import AutoencoderKL, DDIMScheduler, PNDMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from safetensors.torch import save_file
from transformers import BertConfig, BertForMaskedLM, CLIPTextConfig, CLIPTextModel, CLIPTokenizer

WIDTH = 16
"""Numbers of a text state."""
WORDS = ("no", "acute", "cardio", "##pulmonary", "process", "edema", "heart", "normal")


def unet(seed: int = 0, **config) -> UNet2DConditionModel:
    torch.manual_seed(seed)
    made = UNet2DConditionModel(
        sample_size=64,
        block_out_channels=(8, 16),
        layers_per_block=1,
        # attention at half size alone: over 64 x 64 cells it would take most of the tests' time
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        attention_head_dim=4,
        **{"cross_attention_dim": WIDTH} | config,
    )
    with torch.no_grad():  # so that a prompt shows in what random weights predict
        for name, value in made.named_parameters():
            if "attn2" in name:
                value *= 8
    return made.eval()


def vae(seed: int = 1) -> AutoencoderKL:
    torch.manual_seed(seed)
    return AutoencoderKL(
        block_out_channels=(4, 4, 4, 4),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        norm_num_groups=2,
        latent_channels=4,
        scaling_factor=0.13025,
        force_upcast=True,
    ).eval()


def bert(seed: int = 2) -> BertForMaskedLM:
    torch.manual_seed(seed)
    size = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return BertForMaskedLM(BertConfig(vocab_size=5 + len(WORDS), max_position_embeddings=160, **size)).eval()


def write_bert(folder: Path, model: BertForMaskedLM) -> None:
    """Write BioViL-T's files: the encoder under a prefix, two heads beside it, a class that only its own code knows."""
    model.save_pretrained(folder)
    heads = {f"cls_projection_head.{name}": torch.ones(4, WIDTH) for name in ("dense_to_hidden", "dense_to_output")}
    # the position numbers are among the weights of files of its time
    heads["bert.embeddings.position_ids"] = torch.arange(160)[None]
    tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    held = {name: value for name, value in model.state_dict().items() if name not in tied}
    save_file(held | heads, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "architectures": ["CXRBertModel"],
        "model_type": "cxr-bert",
        "projection_size": 128,
        "auto_map": {"AutoModel": "modeling_cxrbert.CXRBertModel"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    (folder / "vocab.txt").write_text("\n".join([*special.values(), "[MASK]", *WORDS]) + "\n")
    told = special | {"mask_token": "[MASK]", "do_lower_case": True, "tokenizer_class": "CXRBertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))


def write_radedit(folder: Path) -> dict[str, str]:
    """Write the three published parts; returns their folders by the names of the engine's inputs."""
    files = {name: folder / name for name in ("radedit", "sdxl_vae", "biovil_t")}
    unet().save_pretrained(files["radedit"] / "unet")
    vae().save_pretrained(files["sdxl_vae"])
    write_bert(files["biovil_t"], bert())
    return {name: str(path) for name, path in files.items()}


def pipeline(folder: Path, **scheduler) -> StableDiffusionPipeline:
    """Return a Stable Diffusion of its own class with CLIP, as RoentGen is; ``folder`` is for its vocabulary."""
    torch.manual_seed(3)
    folder.mkdir(parents=True)
    tokens = [*"abcdefghijklmnopqrstuvwxyz", *(f"{letter}</w>" for letter in "abcdefghijklmnopqrstuvwxyz")]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer.from_pretrained(folder, model_max_length=77)
    size = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"bos_token_id": len(tokens) - 2, "eos_token_id": len(tokens) - 1, "pad_token_id": len(tokens) - 1}
    text = CLIPTextModel(CLIPTextConfig(vocab_size=len(tokens), max_position_embeddings=77, **size, **ends)).eval()
    kind = DDIMScheduler if scheduler.get("rescale_betas_zero_snr") else PNDMScheduler
    noise = kind(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, steps_offset=1, **scheduler)
    more = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    return StableDiffusionPipeline(
        vae=vae(), text_encoder=text, tokenizer=tokenizer, unet=unet(), scheduler=noise, **more
    )


def curved(latent: torch.Tensor, time: int, prompts: str | tuple[str, ...]) -> torch.Tensor:
    """Predict as a net that depends on all three inputs and mixes cells, a row at a time."""
    each = (prompts,) * len(latent) if isinstance(prompts, str) else prompts
    told = torch.tensor([len(prompt) / 10 for prompt in each], dtype=latent.dtype).reshape(-1, 1, 1, 1)
    return torch.tanh(latent + torch.roll(latent, 1, dims=-1) * (0.5 + told) + time / 700 - told)
