"""SAM as published (sam_vit_h_4b8939), with an encoder of any size."""

from cxr.base.errors import UserError
from cxr.nets.weight_files import WeightFiles, fill_module
from cxr.segmentation.published import ours_of, published_of
from cxr.segmentation.segmenter import Segmenter, begun
from cxr.segmentation.sizes import sam_sizes

INPUT = "results/weights/sam.safetensors"
"""The file that it reads."""


def load(hidden: int, file: str, seed: int) -> Segmenter:
    """Return the segmenter for hidden states of ``hidden`` values; ``seed``: of its projection.

    Raises UserError for a file that is no SAM.
    """
    with WeightFiles(file) as weights:
        shape_by_name = {ours_of(name): shape for name, shape in weights.shapes.items()}
        if None in shape_by_name:
            odd = next(name for name in weights.shapes if ours_of(name) is None)
            raise UserError(f"{file} holds {odd}, which is no tensor of SAM: get the published file")
        segmenter = begun(sam_sizes(shape_by_name), hidden, seed)
        fill_module(segmenter.sam, weights, file, published_of)
    return segmenter
