"""Write the large nets at their true size with random weights, in their engines' file formats, for `engines.py`.

The nets have the sizes of the published nets. The size of RadEdit's U-Net is not public. The U-Net of Stable Diffusion
1.x replaces it, with RadEdit's text states of 768 numbers. Modules of the tests (tests/support) make files like the
published ones. `engines.py` does not import this module, which runs in the engine's environment.
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
"""Size of a text state of BioViL-T, to which RadEdit's U-Net attends."""
ULTRALYTICS = "yolo11x.yaml"
"""Architecture of the ultralytics detector: the largest net of YOLO11."""
EPS = 1e-3
"""Epsilon of batch normalisation in the public training code of both detectors."""
CANDIDATES = 7e-4
"""Fraction of a detector's scores above ``boxes.floor``. For P6 on 1088 x 1088 pixels these are about a thousand, so
that suppression takes as long as with a trained net."""


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
    """Return HybridGNet for images of 1024 x 1024 pixels."""
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
    """Set a detector's batch statistics to those of the image ``shown``, so that ``CANDIDATES`` of its scores reach
    ``floor``.

    scores: returns the net's scores for ``shown``, 0 to 1; biases: views of the biases of its class logits, changed in
    place.
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
    """Write the engine's weights file, converted from a checkpoint in the published format.

    All functions ``write_*`` take a folder, the stage's options and a frame uint8 (512, 512). They return {name of the
    engine's input: file}.
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
    """Write one weights file and use it for all folds, because all folds take the same time.

    net, plan: another net of the family and its architecture. The file is written directly, without a published pickle,
    whose classes are not available.
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
    """Return the number of values in the safetensors files of an engine, {input: file or folder}."""
    total = 0
    for place in map(Path, files.values()):
        for path in sorted(place.rglob("*.safetensors")) if place.is_dir() else [place]:
            with safe_open(path, "pt") as file:
                total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return total
