"""Published SAM weights in the layout of sam_vit_h_4b8939, with an encoder of any size."""

from cxr.base.errors import UserError
from cxr.nets.weight_files import WeightFiles, fill_module
from cxr.segmentation.published import infer_sam_config, to_our_name, to_published_name
from cxr.segmentation.segmenter import Segmenter, make_new_segmenter

INPUT = "results/weights/sam.safetensors"  # the published file, converted to safetensors


def load(hidden: int, file: str, seed: int) -> Segmenter:
    """Return a segmenter for hidden states (hidden,) with the SAM in ``file`` and a random projection by ``seed``.
    Raises UserError if the file contains another net."""
    with WeightFiles(file) as weights:
        shape_by_name = {to_our_name(name): shape for name, shape in weights.shapes.items()}
        if None in shape_by_name:
            odd = next(name for name in weights.shapes if to_our_name(name) is None)
            raise UserError(f"{file} has a tensor {odd}, which SAM does not have: download the published file")
        segmenter = make_new_segmenter(infer_sam_config(shape_by_name), hidden, seed)
        fill_module(segmenter.sam, weights, file, to_published_name)
    return segmenter
