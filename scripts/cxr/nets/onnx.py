"""Run small ONNX nets. The results do not depend on the number of threads.

Each process opens one session per file, and each session uses one thread. A thread pool may process several images at
once, but a matrix product is never split: a different order of summation would change the last digits.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.faults import is_not_from_input

GRAPH, OUTPUT, NAME = 0x3A, 0x62, 0x0A  # tags of ModelProto.graph, GraphProto.output, ValueInfoProto.name (onnx.proto)


@lru_cache(maxsize=8)
def _session(path: str) -> onnxruntime.InferenceSession:
    return _start_session(path, log_severity=3)


def _start_session(model: str | bytes, log_severity: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = log_severity
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def open_session(path: str | Path) -> onnxruntime.InferenceSession:
    """Return this process's session of an ONNX file, which threads share. Raises UserError if the file is unusable."""
    if not Path(path).is_file():
        raise UserError(f"the model file {path} does not exist: restore it or give another path")
    try:
        return _session(str(path))
    except Exception as error:  # onnxruntime's error classes have no common public base
        refuse_machine_fault(path, error)
        if is_not_from_input(error):
            raise
        raise UserError(f"the model file {path} cannot be read as ONNX: restore it ({type(error).__name__})") from None


def read_metadata(path: str | Path) -> dict[str, str]:
    """Return the metadata that the training script wrote into an ONNX file."""
    return dict(open_session(path).get_modelmeta().custom_metadata_map)


def run_model(path: str | Path, **inputs: np.ndarray) -> list[np.ndarray]:
    """Run the model on ``inputs`` ({name: array}) and return its outputs in the order of the file."""
    return open_session(path).run(None, inputs)


def compute_layer(path: str | Path, name: str, **inputs: np.ndarray) -> np.ndarray:
    """Return the output of the layer ``name`` for ``inputs`` ({name: array}). Raises UserError without this layer."""
    return _layer_session(str(path), name).run([name], inputs)[0]


@lru_cache(maxsize=4)
def _layer_session(path: str, name: str) -> onnxruntime.InferenceSession:
    try:
        # Concatenated Protocol Buffers merge: appending a model that only declares an output adds that output.
        extra_output = _encode_field(GRAPH, _encode_field(OUTPUT, _encode_field(NAME, name.encode())))
        return _start_session(Path(path).read_bytes() + extra_output, log_severity=4)
    except Exception as error:  # onnxruntime's error classes have no common public base
        refuse_machine_fault(path, error)
        if is_not_from_input(error):
            raise
        raise UserError(f"the model file {path} has no layer {name!r}: restore it ({type(error).__name__})") from None


def _encode_field(tag: int, data: bytes) -> bytes:
    """Return a field of Protocol Buffers, which is the tag, the length in groups of seven bits, and ``data``."""
    size, length = len(data), []
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([tag, *length, size]) + data
