"""Write a detector trained by semisyn_detectors (engine lite) as ONNX, for the setting ``boxes.lite.model``.

    python scripts/tools/detector_onnx.py results/semisyn/detectors/real.s0/model mine.onnx

This needs the package onnx (requirements/training.in). The detector's confidences are not calibrated.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from cxr.base.atomic import atomic_file
from cxr.detection.export import export_onnx
from cxr.semisyn.detectors.lite import LICENCE, WEIGHTS, read_detector


def write(model: Path, output: Path) -> None:
    """Write the detector in ``model``, the folder of a training, to ``output``. Raises UserError if there is none."""
    net = read_detector(model / WEIGHTS)
    number = len(net.grid.classes)
    with atomic_file(output) as temporary:
        export_onnx(net, np.ones(number), np.zeros(number), Path(temporary), LICENCE)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    write(given.model, given.output)


if __name__ == "__main__":
    main()
