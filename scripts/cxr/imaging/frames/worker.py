"""A process that decodes images one by one, so that a crashing decoder does not end the job.

``isolate`` starts it with ``python -m``; it exchanges pickles over its standard streams.
"""

import os
import pickle
import resource
import sys
from contextlib import suppress

import numpy as np

from cxr.base.errors import MACHINE_ERRORS, describe, out_of_memory
from cxr.base.faults import broken_part
from cxr.dicom.files import Rejected, describe_error
from cxr.dicom.pixels import list_missing_decoders
from cxr.imaging.frames.decoding import is_narrow, read_image


class Unexpected(Rejected):
    """A file cannot be decoded for a reason that points to the machine if it repeats; the job counts these."""


def prepare(path: str, options: dict) -> tuple[np.ndarray, np.ndarray, tuple[int, int], bool, tuple[str, ...]]:
    """Return (frame uint8 (512, 512), affine to original float64 (2, 3), original (rows, columns), narrow, notes).

    ``narrow``: whether few pixels hold most of the grey range; ``notes``: corrections of the header. ``options`` are
    those of the stage, and ``burned_in``. Raises :class:`Rejected`.
    """
    try:
        decoded = read_image(path, options)
    except Exception as error:
        if out_of_memory(error):
            raise Unexpected("undecodable", f"more memory than {options['max_memory_mb']} MB") from None
        raise
    return *decoded.frame(options["fit"]), decoded.grey.shape, is_narrow(decoded.grey), decoded.notes


def main() -> None:
    """Read options, then paths, from standard input; write one answer per path until the input ends."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    options = pickle.load(requests)
    limit = options["max_memory_mb"] << 20
    with suppress(ValueError, OSError):  # not every system supports it; the limit on pixels still applies
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    missing = list_missing_decoders()
    remedy = "run with the environment envs/frames.yaml, or install it"
    pickle.dump(f"this Python lacks decoders ({', '.join(missing)}): {remedy}" if missing else "", answers)
    answers.flush()
    if missing:
        return
    # Decoders print messages about damaged files, with patient text, on both streams.
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
        except Unexpected as rejected:
            answer = ("failed", rejected.reason, rejected.detail)
        except Rejected as rejected:
            answer = ("rejected", rejected.reason, rejected.detail)
        except Exception as error:
            answer = ("failed", "undecodable", describe_error(error))
            if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
                answer = ("machine", error.errno, error.strerror)
            elif not isinstance(error, OSError) and (component := broken_part(error)):
                answer = ("broken", f"{component} is broken, not an image ({describe(error)})")
        pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    main()
