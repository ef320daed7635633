"""Running a small ONNX net so that the same image gives the same numbers for any number of threads.

Each process has one session per file, with one thread inside it. A pool of threads works on several images, never on
the rows of one matrix product: another order of summation would change the last digits.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.faults import no_inputs


@lru_cache(maxsize=8)
def _session(path: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def session(path: str | Path) -> onnxruntime.InferenceSession:
    """Return the session of an ONNX file, opened once per process; safe to use from several threads.

    Raises UserError if the file is missing or not an ONNX model.
    """
    if not Path(path).is_file():
        raise UserError(f"the model file {path} does not exist: restore it or give another path")
    try:
        return _session(str(path))
    except Exception as error:  # onnxruntime's error classes have no common public base
        refuse_machine_fault(path, error)
        if no_inputs(error):
            raise
        raise UserError(f"the model file {path} cannot be read as ONNX: restore it ({type(error).__name__})") from None


def metadata(path: str | Path) -> dict[str, str]:
    """Return the metadata that the training script wrote into the file."""
    return dict(session(path).get_modelmeta().custom_metadata_map)


def run(path: str | Path, **inputs: np.ndarray) -> list[np.ndarray]:
    """Run the model once on named inputs and return its outputs in the order of the file."""
    return session(path).run(None, inputs)
