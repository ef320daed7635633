"""The process that ``isolate`` starts to decode images, so that the crash of a decoder does not end the job."""

import os
import platform
import resource
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

from cxr.base.errors import MACHINE_ERRORS, describe, out_of_memory
from cxr.base.faults import Broken, broken_part
from cxr.dicom.files import Rejected, describe_error
from cxr.dicom.pixels import list_missing_decoders
from cxr.imaging.frames.decoding import is_narrow, read_image


def prepare(path: str, options: dict) -> tuple | Exception:
    """Decode a file. Return an answer, or an exception (OSError, Broken) if the machine or the program is at fault.

    A decoded file gives the answer ("frame", frame uint8 (512, 512), affine (2, 3) from the frame to the original,
    (rows, columns) of the original, result of :func:`is_narrow`, notes on the header). A :class:`Rejected` file gives
    ("rejected", reason, detail). Another error gives ("failed", reason, detail), because the file may have caused it.
    Many failures suggest a fault of the machine. ``options``: settings of the frames stage, burned_in, max_memory_mb.
    """
    try:
        decoded = read_image(path, options)
        frame, affine = decoded.frame(options["fit"])
        return "frame", frame, affine, decoded.grey.shape, is_narrow(decoded.grey), decoded.notes
    except Exception as error:
        if out_of_memory(error):
            return "failed", "undecodable", f"more memory than {options['max_memory_mb']} MB"
        if isinstance(error, Rejected):
            return "rejected", error.reason, error.detail
        if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
            return OSError(error.errno, error.strerror)
        if not isinstance(error, OSError) and (component := broken_part(error)):
            return Broken(f"frames: {component} is broken, not an image ({describe(error)}), on {platform.node()}")
        return "failed", "undecodable", describe_error(error)


def main() -> None:
    """Receive the options and then paths from the pipe. Answer each path, until the pipe is closed."""
    pipe = Connection(int(sys.argv[1]))
    options = pipe.recv()
    limit = options["max_memory_mb"] << 20
    with suppress(ValueError, OSError):  # not all systems have this limit; MAX_PIXELS still applies
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    missing = list_missing_decoders()
    remedy = "run snakemake with --software-deployment-method conda, or install them"
    pipe.send(f"this Python lacks decoders ({', '.join(missing)}): {remedy}" if missing else "")
    # For damaged files, decoders print messages with patient text to both streams.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    with suppress(EOFError):
        while True:
            pipe.send(prepare(pipe.recv(), options))


if __name__ == "__main__":
    main()
