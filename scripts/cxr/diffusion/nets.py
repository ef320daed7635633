"""The three nets of a latent diffusion model behind three functions: encode, decode and predict."""

from dataclasses import dataclass

import torch
from diffusers import DDIMScheduler

from cxr.base.errors import UserError
from cxr.base.faults import no_inputs
from cxr.diffusion import folders
from cxr.diffusion.guidance import Prompts
from cxr.diffusion.schedule import PREDICTIONS
from cxr.nets.devices import inference


@dataclass(frozen=True)
class Nets:
    """A loaded model. Images are float32 (B, 3, H, W) in -1..1, latents float32 (B, C, H / 8, W / 8).

    On a CPU each row is processed alone, so that its result does not depend on the other rows, to the last bit. The
    autoencoder processes rows one by one on every device, because of its memory.
    """

    unet: torch.nn.Module
    vae: torch.nn.Module
    states: dict[str, torch.Tensor]
    """{prompt: text states (1, tokens, width)}."""
    abars: list[float]
    """Fraction of the signal's variance at each time."""
    prediction: str
    device: torch.device

    def encode(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return the latents: the mean of the autoencoder's distribution, not a sample, so they are reproducible."""
        means = [self.vae.encode(row).latent_dist.mode() for row in pictures.to(self.device).split(1)]
        return torch.cat(means) * self.vae.config.scaling_factor

    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """Return the images, clipped to -1..1."""
        rows = (latents / self.vae.config.scaling_factor).split(1)
        return torch.cat([self.vae.decode(row).sample for row in rows]).clamp(-1, 1)

    def predict(self, latents: torch.Tensor, time: int, prompts: Prompts) -> torch.Tensor:
        """Return the U-Net's prediction at ``time`` under the prompts, float32 of the latents' shape.

        ``prompts``: one for all rows, or one per row.
        """
        if isinstance(prompts, str):
            states = self.states[prompts].expand(len(latents), -1, -1)
        else:
            states = torch.cat([self.states[prompt] for prompt in prompts])
        size = 1 if self.device.type == "cpu" else len(latents)
        rows = zip(latents.to(self.unet.dtype).split(size), states.split(size), strict=True)
        return torch.cat([self.unet(row, time, encoder_hidden_states=each).sample for row, each in rows]).float()


def load_nets(layout: folders.Layout, prompts: dict[str, str], dtype: torch.dtype, device: torch.device) -> Nets:
    """Load a model and encode its prompts, {text: key of its setting}.

    Raises UserError for an unusable file or prompt.
    """
    text_remedy = layout.remedy(layout.text)
    text = folders.text_net(layout.text, layout.text_class, text_remedy)
    tokenizer = folders.tokenizer(layout.tokenizer, text, layout.remedy(layout.tokenizer))
    abars, prediction = noise(layout)
    unet = folders.net(layout.unet, "unet", dtype, layout.remedy(layout.unet))
    vae = folders.net(layout.vae, "vae", torch.float32, layout.remedy(layout.vae))
    channels = {unet.config.in_channels, unet.config.out_channels, vae.config.latent_channels}
    if len(channels) > 1 or unet.config.cross_attention_dim != text.config.hidden_size:
        raise UserError(
            f"{layout.unet} takes {unet.config.in_channels} channels and text states of "
            f"{unet.config.cross_attention_dim} numbers, but {layout.vae} makes {vae.config.latent_channels} and "
            f"{layout.text} {text.config.hidden_size}: {layout.remedy(layout.unet)}"
        )
    length = layout.tokens or min(tokenizer.model_max_length, text.config.max_position_embeddings)
    with inference():
        states = {told: text_states(text, tokenizer, told, length, key, layout) for told, key in prompts.items()}
    return Nets(
        unet=unet.to(device),
        vae=vae.to(device),
        states={told: value.to(device, dtype) for told, value in states.items()},
        abars=abars,
        prediction=prediction,
        device=device,
    )


def noise(layout: folders.Layout) -> tuple[list[float], str]:
    """Return the fraction of the signal's variance at each time, and the prediction type. Raises UserError."""
    remedy, told = layout.remedy(layout.unet), layout.noise.get("prediction_type", PREDICTIONS[0])
    if told not in PREDICTIONS:
        raise UserError(f"{layout.unet.parent} has prediction_type {told!r}, not {' or '.join(PREDICTIONS)}: {remedy}")
    try:
        scheduler = DDIMScheduler(**layout.noise)
    except Exception as error:
        if no_inputs(error):
            raise
        raise UserError(
            f"{layout.unet.parent} has no usable noise schedule ({type(error).__name__}): {remedy}"
        ) from None
    return scheduler.alphas_cumprod.tolist(), told


def text_states(
    text: torch.nn.Module, tokenizer, prompt: str, length: int, key: str, layout: folders.Layout
) -> torch.Tensor:
    """Return the text states (1, length, width) of a prompt, float32; ``key`` names its setting.

    Attention includes the padding, as in the pipelines of diffusers. Raises UserError for more than ``length`` tokens,
    and for a word that the tokenizer does not know.
    """
    tokens = tokenizer(prompt)["input_ids"]
    if len(tokens) > length:
        raise UserError(f"{key} has {len(tokens)} tokens and the model reads {length}: shorten it")
    # CLIP's tokenizer has no unknown word: its token for them also ends every prompt
    if tokenizer.unk_token != tokenizer.eos_token and tokenizer.unk_token_id in tokens:
        raise UserError(
            f"{layout.tokenizer} holds a tokenizer that does not know a word of {key}: reword it, or "
            f"{layout.remedy(layout.tokenizer)}"
        )
    padded = tokenizer(prompt, padding="max_length", max_length=length, return_tensors="pt")["input_ids"]
    return text(padded, attention_mask=None).last_hidden_state
