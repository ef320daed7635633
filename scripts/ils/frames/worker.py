"""A process that decodes images one after another, so that a decoder that crashes takes down no job.

Started by ``isolate`` as ``python -m``; speaks length-free pickles over its standard streams.
"""

import os
import pickle
import sys

import numpy as np

from ils.core.geometry import fit_affine, to_frame
from ils.core.media import Rejected, sentence_of
from ils.core.run import MACHINE_ERRORS
from ils.frames.decode import decode
from ils.frames.window import is_narrow, to_grey


def prepare(path: str, options: dict) -> tuple[np.ndarray, np.ndarray, tuple[int, int], bool]:
    """Return (frame uint8 (size, size), affine to original float64 (2, 3), original (rows, columns), narrow range).

    ``options`` are the fields of ``stage.Options``. Raises :class:`Rejected`.
    """
    try:
        grey = to_grey(decode(path, options["max_pixels"]), options["window"], options["percentiles"])
    except MemoryError:
        raise Rejected("undecodable", "more memory than frames.max_memory_mb") from None
    affine = fit_affine(grey.shape, options["size"], options["fit"])
    narrow = is_narrow(grey, options["spike_share"], options["spike_range"])
    return to_frame(grey, affine, options["size"]), affine, grey.shape, narrow


def _limit_memory(megabytes: int) -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    except (ImportError, ValueError, OSError):
        pass  # not every system can; the limit on pixels stays


def _undecodable(error: Exception) -> tuple[str, str, str]:
    return "rejected", "undecodable", sentence_of(error)


def main() -> None:
    """Read options, then paths, from standard input; write one answer per path until the input ends."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    options = pickle.load(requests)
    _limit_memory(options["max_memory_mb"])
    pickle.dump("ready", answers)
    answers.flush()
    # Decoders print about damaged files on both streams, patient text included.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    while True:
        try:
            path = pickle.load(requests)
        except EOFError:
            return
        try:
            answer = ("frame", *prepare(path, options))
        except Rejected as rejected:
            answer = ("rejected", rejected.reason, rejected.detail)
        except OSError as error:
            answer = ("failed", error.errno, error.strerror) if error.errno in MACHINE_ERRORS else _undecodable(error)
        except Exception as error:
            answer = _undecodable(error)
        pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    main()
