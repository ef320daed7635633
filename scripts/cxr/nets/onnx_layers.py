"""Reading a layer inside a small ONNX net, which its file does not name as an output.

A message of Protocol Buffers may be appended to another: repeated fields are joined, so that a model followed by one
that holds nothing but an output has this output too. The file stays as it is.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.faults import no_inputs

GRAPH, OUTPUT, NAME = 0x3A, 0x62, 0x0A
"""Tags of ModelProto.graph, GraphProto.output and ValueInfoProto.name (onnx.proto)."""


def layer(path: str | Path, name: str, **inputs: np.ndarray) -> np.ndarray:
    """Run a model on named inputs, with one thread, and return the values of its inner layer ``name``.

    Raises UserError for a file that is missing, is no ONNX model, or has no such layer.
    """
    return _session(str(path), name).run([name], inputs)[0]


@lru_cache(maxsize=4)
def _session(path: str, name: str) -> onnxruntime.InferenceSession:
    try:
        data = Path(path).read_bytes()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        added = _field(GRAPH, _field(OUTPUT, _field(NAME, name.encode())))
        return onnxruntime.InferenceSession(data + added, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's error classes have no common public base
        refuse_machine_fault(path, error)
        if no_inputs(error):
            raise
        raise UserError(f"the model file {path} has no layer {name!r}: restore it ({type(error).__name__})") from None


def _field(tag: int, data: bytes) -> bytes:
    """Return a field of a message: its tag, its length in groups of seven bits, its bytes."""
    size, length = len(data), []
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([tag, *length, size]) + data
