"""Loading the three nets of a latent diffusion model, and running them to encode, decode and predict."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from diffusers import DDIMScheduler

from cxr.base.errors import UserError
from cxr.diffusion import folders
from cxr.diffusion.guidance import Prompts
from cxr.diffusion.schedule import PREDICTIONS
from cxr.nets.devices import inference
from cxr.nets.speed import Speed, fast_inference, memory_format, optimize_net

AUTOENCODER_ROWS = 4  # images that the autoencoder processes at once on a GPU, unless ``compute.batches`` sets a number


@dataclass(frozen=True)
class NetOptions:
    """Number types and speed of the nets. The text encoder always uses float32."""

    dtype: torch.dtype  # number type of the U-Net
    autoencoder: str = "float32"  # number type of the autoencoder: float32, bfloat16, or tf32 (TF32 products)
    rows: int = 1  # number of images that the autoencoder processes at once on a GPU
    speed: Speed = field(default_factory=Speed)

    @classmethod
    def from_settings(cls, dtype: str, autoencoder: str, compute: Mapping) -> "NetOptions":
        """Return the options. ``dtype``, ``autoencoder``: names of number types; ``compute``: settings section."""
        rows = compute.get("batches", {}).get("autoencoder", AUTOENCODER_ROWS)
        return cls(getattr(torch, dtype), autoencoder, rows, Speed.from_settings(compute))


@dataclass(frozen=True)
class Nets:
    """A loaded model. Images are float32 (B, 3, H, W) in -1..1, latents float32 (B, C, H / 8, W / 8). On a CPU, rows
    are processed one by one, so that the result of a row does not depend on other rows, to the last bit."""

    unet: Callable
    vae: torch.nn.Module
    states: dict[str, torch.Tensor]  # {prompt: text states (1, tokens, width)}
    abars: list[float]  # fraction of the signal's variance at each time
    prediction: str
    device: torch.device
    runtime: NetOptions
    cache: dict = field(default_factory=dict, compare=False)
    """Tensors on the device that all steps reuse: times, and the text states of the last prompts."""

    def encode(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return the latents of images. They are the mean of the autoencoder's distribution, not a random sample."""
        with fast_inference(self.runtime.speed, tf32=self.runtime.autoencoder == "tf32"):
            rows = pictures.to(self.device, self.vae.dtype).split(self._rows())
            means = [self.vae.encode(row).latent_dist.mode() for row in rows]
        return torch.cat(means).float() * self.vae.config.scaling_factor

    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """Return the images of latents, clipped to -1..1."""
        with fast_inference(self.runtime.speed, tf32=self.runtime.autoencoder == "tf32"):
            rows = (latents / self.vae.config.scaling_factor).to(self.vae.dtype).split(self._rows())
            pictures = [self.vae.decode(row).sample for row in rows]
        return torch.cat(pictures).float().clamp(-1, 1)

    def predict(self, latents: torch.Tensor, time: int, prompts: Prompts) -> torch.Tensor:
        """Return the U-Net's prediction at ``time``, float32, shaped like latents. ``prompts``: one or one per row."""
        size = 1 if self.device.type == "cpu" else len(latents)
        if isinstance(prompts, str):
            states = self.states[prompts].expand(len(latents), -1, -1)
        else:
            if self.cache.get("prompts") != prompts:  # all steps have the same prompts
                self.cache.update(prompts=prompts, states=torch.cat([self.states[prompt] for prompt in prompts]))
            states = self.cache["states"]
        rows = zip(latents.to(self.runtime.dtype).split(size), states.split(size), strict=True)
        at = self.cache.setdefault(time, torch.tensor(time, device=self.device))
        with fast_inference(self.runtime.speed):
            return torch.cat([self.unet(row, at, encoder_hidden_states=each).sample for row, each in rows]).float()

    def _rows(self) -> int:
        return 1 if self.device.type == "cpu" else self.runtime.rows


def load_nets(layout: folders.Layout, prompts: dict[str, str], runtime: NetOptions, device: torch.device) -> Nets:
    """Load a model and encode the prompts, {prompt: setting that gives it}. Raises UserError for a faulty file, or a
    prompt that is too long or has an unknown word."""
    text_remedy = layout.remedy(layout.text)
    text = folders.load_text_net(layout.text, layout.text_class, text_remedy)
    tokenizer = folders.load_tokenizer(layout.tokenizer, text, layout.remedy(layout.tokenizer))
    abars, prediction = read_noise_schedule(layout)
    unet = folders.load_net(layout.unet, "unet", runtime.dtype, layout.remedy(layout.unet))
    vae_dtype = torch.bfloat16 if runtime.autoencoder == "bfloat16" else torch.float32
    vae = folders.load_net(layout.vae, "vae", vae_dtype, layout.remedy(layout.vae))
    channels = {unet.config.in_channels, unet.config.out_channels, vae.config.latent_channels}
    if len(channels) > 1 or unet.config.cross_attention_dim != text.config.hidden_size:
        raise UserError(
            f"{layout.unet} expects {unet.config.in_channels} latent channels and text states of size "
            f"{unet.config.cross_attention_dim}, but {layout.vae} has {vae.config.latent_channels} channels and "
            f"{layout.text} has size {text.config.hidden_size}: {layout.remedy(layout.unet)}"
        )
    length = layout.tokens or min(tokenizer.model_max_length, text.config.max_position_embeddings)
    with inference():
        states = {prompt: encode_text(text, tokenizer, prompt, length, key, layout) for prompt, key in prompts.items()}
    return Nets(
        unet=optimize_net(unet.to(device), runtime.speed, "the U-Net"),
        vae=vae.to(device, memory_format=memory_format(runtime.speed)),
        states={prompt: value.to(device, runtime.dtype) for prompt, value in states.items()},
        abars=abars,
        prediction=prediction,
        device=device,
        runtime=runtime,
    )


def read_noise_schedule(layout: folders.Layout) -> tuple[list[float], str]:
    """Return (fraction of the variance at each time that is signal, prediction type). Raises UserError if invalid."""
    remedy, prediction = layout.remedy(layout.unet), layout.noise.get("prediction_type", PREDICTIONS[0])
    if prediction not in PREDICTIONS:
        problem = f"{layout.unet.parent} has prediction_type {prediction!r}, not {' or '.join(PREDICTIONS)}"
        raise UserError(f"{problem}: {remedy}")
    with folders.refuse_unusable(layout.unet, f"{layout.unet.parent} has an invalid noise schedule", remedy):
        scheduler = DDIMScheduler(**layout.noise)
    return scheduler.alphas_cumprod.tolist(), prediction


def encode_text(
    text: torch.nn.Module, tokenizer, prompt: str, length: int, key: str, layout: folders.Layout
) -> torch.Tensor:
    """Return the text states of a prompt, float32 (1, length, width). As in diffusers, attention includes the padding.
    Raises UserError if the prompt has more than ``length`` tokens or a word that the tokenizer does not know. ``key``
    is the setting that gives the prompt."""
    tokens = tokenizer(prompt)["input_ids"]
    if len(tokens) > length:
        raise UserError(f"{key} has {len(tokens)} tokens, but the model reads only {length}: shorten the text")
    # CLIP's tokenizer knows every word; its token for unknown words also ends every prompt, so it proves nothing
    if tokenizer.unk_token != tokenizer.eos_token and tokenizer.unk_token_id in tokens:
        raise UserError(
            f"{layout.tokenizer} holds a tokenizer that does not know a word of {key}: reword the prompt, "
            f"or {layout.remedy(layout.tokenizer)}"
        )
    padded = tokenizer(prompt, padding="max_length", max_length=length, return_tensors="pt")["input_ids"]
    return text(padded, attention_mask=None).last_hidden_state
