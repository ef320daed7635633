"""Write the large nets at their true size with random weights, in their engines' file formats: part of `engines.py`.

Sizes are those of the published nets; that of RadEdit's U-Net is not public, so Stable Diffusion 1.x stands for it,
with the 768 numbers of a text state that RadEdit is known to take. How a published file is made is the tests' knowledge
(``tests/tiny_*.py``). Not imported by `engines.py` itself: it runs in the engine's environment.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import nn

TEXT_WIDTH = 768
"""Numbers of a text state of BioViL-T, which RadEdit's U-Net attends to."""
ULTRALYTICS = "yolo11x.yaml"
"""The plan that stands for a checkpoint of the user's: the largest of its generation."""
EPS = 1e-3
"""What the public training code of both detectors adds to a variance."""
CANDIDATES = 7e-4
"""Share of a detector's scores above ``boxes.floor``: of P6 on 1088 x 1088 pixels about a thousand, so that
suppression has work as with a trained net."""


def unet() -> nn.Module:
    """Return a U-Net of Stable Diffusion 1.x for latents of 64 x 64 cells (512 pixels)."""
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=64,
        block_out_channels=(320, 640, 1280, 1280),
        layers_per_block=2,
        down_block_types=("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",),
        up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3,
        attention_head_dim=8,
        cross_attention_dim=TEXT_WIDTH,
    )


def vae() -> nn.Module:
    """Return the autoencoder of Stable Diffusion XL."""
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        sample_size=1024,
        block_out_channels=(128, 256, 512, 512),
        layers_per_block=2,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=4,
        scaling_factor=0.13025,
        force_upcast=True,
    )


def bert() -> nn.Module:
    """Return BioViL-T's text encoder with its head for masked words: BERT base."""
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(hidden_size=TEXT_WIDTH))


def p6() -> nn.Module:
    """Return one fold of the detector, ScaledYOLOv4-P6 for 14 classes."""
    from cxr.imaging.boxes.scaled_yolov4.network import Network
    from tiny_yolo import STRIDES, plan

    return Network(plan(), STRIDES)


def hybridgnet() -> nn.Module:
    """Return HybridGNet for pictures of 1024 x 1024 pixels."""
    from cxr.imaging.organs.hybridgnet.net import HybridGNet

    return HybridGNet()


def cxas() -> dict[str, torch.Tensor]:
    """Return random tensors of CXAS's U-Net on a ResNet-50."""
    from cxr.imaging.anatomy.cxas import published_net

    return {name: _random(name, tuple(value.shape)) for name, value in published_net()[0].state_dict().items()}


def _random(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    if name.endswith("num_batches_tracked"):
        return torch.zeros(shape, dtype=torch.int64)
    if len(shape) == 4:
        return torch.randn(shape) * math.sqrt(2 / math.prod(shape[1:]))
    # a normalisation changes nothing, and there is no bias
    return torch.ones(shape) if name.endswith(("running_var", "weight")) else torch.zeros(shape)


def like_trained(
    net: nn.Module, shown: torch.Tensor, scores: Callable[[], torch.Tensor], biases: list[torch.Tensor], floor: float
) -> None:
    """Give a detector the statistics of a picture ``shown``, and scores of which ``CANDIDATES`` reach ``floor``.

    scores: what the net says of the picture, between 0 and 1; biases: of its class scores' logits, views.
    """
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps, module.momentum = EPS, 1.0
        net.train()(shown)
        net.eval()
        ordered = scores().flatten().sort(descending=True).values
        reached = ordered[math.ceil(CANDIDATES * len(ordered))].item()
        for bias in biases:  # small scores grow as the exponential of a logit
            bias += math.log(floor / reached)


def write_hybridgnet(folder: Path, options: dict, image: np.ndarray) -> dict[str, str]:
    """Write the engine's file by way of a checkpoint as published; the same for the functions below.

    Each takes its stage's options and a frame uint8 (512, 512), and returns the files by the names of the engine's
    inputs.
    """
    from tiny_hybridgnet import publish

    return {"weights": publish(folder, hybridgnet().state_dict())}


def write_radedit(folder: Path, options: dict, image: np.ndarray) -> dict[str, str]:
    from tiny_diffusion import write_bert

    files = {name: folder / name for name in ("radedit", "sdxl_vae", "biovil_t")}
    unet().save_pretrained(files["radedit"] / "unet")
    vae().save_pretrained(files["sdxl_vae"])
    write_bert(files["biovil_t"], bert())
    return {name: str(path) for name, path in files.items()}


def write_cxas(folder: Path, options: dict, image: np.ndarray) -> dict[str, str]:
    from cxr.nets.tensors import stream_tensors, tensor_kinds

    state = cxas()
    stream_tensors(folder / "cxas.safetensors", tensor_kinds(state), state.__getitem__)
    return {"weights": str(folder / "cxas.safetensors")}


def write_scaled_yolov4(
    folder: Path, options: dict, image: np.ndarray, net: nn.Module | None = None, plan: dict | None = None
) -> dict[str, str]:
    """One file for all folds, so that less is made: they take the same time.

    net, plan: another of the family. Without a pickle: the classes that it would name are nowhere at hand.
    """
    import tiny_yolo
    from cxr.detection import proposals
    from cxr.imaging.boxes import scaled_yolov4
    from cxr.nets import tensors

    net, plan = net or p6(), plan or tiny_yolo.plan()
    head, path = net.model[-1], folder / "fold.safetensors"
    grid = torch.tensor(tiny_yolo.ANCHORS).view(4, 1, 4, 1, 1, 2).float()
    head.anchor_grid.copy_(grid)
    head.anchors.copy_(grid.view(4, 4, 2) / torch.tensor(tiny_yolo.STRIDES).view(4, 1, 1))
    biases = [layer.bias.detach().view(4, -1) for layer in head.m]
    for bias in biases:  # most cells are empty
        bias[:, 4:] -= 3.0
    bordered = np.pad(
        proposals.resize_square(image, scaled_yolov4.IMAGE_SIZE),
        scaled_yolov4.BORDER,
        constant_values=scaled_yolov4.GREY,
    )
    shown = proposals.stack_input([bordered], 3, torch.device("cpu"))
    like_trained(net, shown, lambda: net(shown)[1], [bias[:, 5:] for bias in biases], options["floor"])
    facts = {"kind": "scaled_yolov4", "yaml": plan, "names": None, "stride": tiny_yolo.STRIDES, "eps": EPS}
    held = net.state_dict()
    tensors.write_weights(path, tensors.tensor_kinds(held), held.__getitem__, facts)
    return dict.fromkeys(scaled_yolov4.INPUTS, str(path))


def write_tiny_radedit(folder: Path, options: dict, image: np.ndarray) -> dict[str, str]:
    import tiny_diffusion

    return tiny_diffusion.write_radedit(folder)


def write_tiny_scaled_yolov4(folder: Path, options: dict, image: np.ndarray) -> dict[str, str]:
    from cxr.imaging.boxes.scaled_yolov4.network import Network
    from tiny_yolo import STRIDES, tiny_plan

    return write_scaled_yolov4(folder, options, image, Network(tiny_plan(), STRIDES), tiny_plan())


def write_ultralytics(folder: Path, options: dict, image: np.ndarray) -> dict[str, str]:
    from cxr.base.vocabulary import BOX_CLASSES
    from cxr.detection import proposals
    from cxr.imaging.boxes.ultralytics import QUIET
    from cxr.imaging.weights.yolo import convert_ultralytics

    os.environ |= QUIET | {"YOLO_CONFIG_DIR": str(folder)}
    from ultralytics.nn.tasks import DetectionModel

    net = DetectionModel(ULTRALYTICS, ch=3, nc=len(BOX_CLASSES), verbose=False)
    net.names = dict(enumerate(BOX_CLASSES))
    biases = [branch[-1].bias.detach() for branch in net.model[-1].cv3]
    shown = proposals.stack_input(
        [proposals.resize_square(image, options["ultralytics"]["image_size"])], 3, torch.device("cpu")
    )
    like_trained(net, shown, lambda: net(shown)[0][:, 4:], biases, options["floor"])
    torch.save({"epoch": -1, "ema": None, "model": net.half()}, folder / "best.pt")
    convert_ultralytics(folder / "best.pt", folder / "ultralytics.safetensors")
    return {"weights": str(folder / "ultralytics.safetensors")}


def values(files: dict[str, str]) -> int:
    """Return how many numbers the safetensors of an engine's files and folders hold."""
    total = 0
    for place in map(Path, files.values()):
        for path in sorted(place.rglob("*.safetensors")) if place.is_dir() else [place]:
            with safe_open(path, "pt") as file:
                total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return total
