"""Converting the published CXAS: a state dict under ``model``, with the training code's prefix before its names."""

from pathlib import Path

from cxr.base.errors import UserError
from cxr.imaging.weights import state_dict
from cxr.nets import tensors
from cxr.nets.tensors import describe_misfit

CLASSES = 159
BLOCKS = {"layer1": (64, 3), "layer2": (128, 4), "layer3": (256, 6), "layer4": (512, 3)}
"""The stages of ResNet-50: width, and number of blocks (He et al., 2016)."""
HEAD = {
    "up1.conv1.conv": ((2048, 1024),),
    "up1.conv2.double_conv": ((2048, 1024), (1024, 512)),
    "up2.conv.double_conv": ((1024, 512), (512, 256)),
    "up3.conv.double_conv": ((512, 256), (256, 64)),
    "up4.conv.double_conv": ((128, 64), (64, 128)),
}
"""The decoder: channels in and out of each block's 3 x 3 convolutions, each followed by normalisation and ReLU."""
PARTS = ("backbone", "head")
"""Parts of the net; other content of a training checkpoint is dropped."""
Shapes = dict[str, tuple[int, ...]]


def _convolution(name: str, ins: int, outs: int, size: int, bias: bool = False) -> Shapes:
    return {f"{name}.weight": (outs, ins, size, size)} | ({f"{name}.bias": (outs,)} if bias else {})


def _normalisation(name: str, channels: int) -> Shapes:
    kinds = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.{kind}": (channels,) for kind in kinds} | {f"{name}.num_batches_tracked": ()}


def _bottleneck(name: str, ins: int, width: int) -> Shapes:
    outs, shapes = 4 * width, {}
    for index, (into, out, size) in enumerate([(ins, width, 1), (width, width, 3), (width, outs, 1)], 1):
        shapes |= _convolution(f"{name}.conv{index}", into, out, size) | _normalisation(f"{name}.bn{index}", out)
    if ins != outs:
        shapes |= _convolution(f"{name}.downsample.0", ins, outs, 1) | _normalisation(f"{name}.downsample.1", outs)
    return shapes


def shapes() -> Shapes:
    """Return {name: shape} of the net's 383 tensors."""
    stem = "backbone.backbone.layer0"
    shape_by_name = _convolution(f"{stem}.0", 3, 64, 7) | _normalisation(f"{stem}.1", 64)
    ins = 64
    for layer, (width, blocks) in BLOCKS.items():
        for block in range(blocks):
            shape_by_name |= _bottleneck(f"backbone.backbone.{layer}.{block}", ins, width)
            ins = 4 * width
    for name, steps in HEAD.items():
        for step, (into, out) in enumerate(steps):
            place = f"head.{name}.{{}}".format
            shape_by_name |= _convolution(place(3 * step), into, out, 3, bias=True) | _normalisation(
                place(3 * step + 1), out
            )
    return shape_by_name | _convolution("head.out.conv", 128, CLASSES, 1, bias=True)


def convert_cxas(source: Path, target: Path) -> dict:
    """Write the net of ``source`` as the safetensors file ``target``, in float32.

    Returns its numbers of tensors and values, and the checkpoint's additional tensors. Raises UserError with one
    sentence for a damaged file, or a net that differs in a tensor or a shape.
    """
    expected_shapes = shapes()
    with state_dict.opened(source, PARTS) as state:
        if fault := describe_misfit(expected_shapes, {name: shape for name, (shape, _) in state.kinds.items()}):
            remedy = "download that (docs/how-to/models.md)"
            raise UserError(f"{source} is not UNet_ResNet50_default.pth of CXAS, for {fault}: {remedy}")
        kinds = tensors.floats_as_float32(state.kinds)
        tensors.stream_tensors(target, kinds, state.get)
    return tensors.count_values(kinds) | {"left_out": state.left_out}
