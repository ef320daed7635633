"""Opening users' files. Only regular files are opened, because a pipe or a device could block a job forever."""

import errno
import os
import stat
from pathlib import Path
from typing import IO, Any

_IRREGULAR = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def open_regular(path: str | Path, mode: str = "rb", **options: Any) -> IO:
    """Open a regular file, or a link to a regular file, for reading. ``options`` are passed to :func:`open`.

    Raises IsADirectoryError for a folder, and OSError with the reason in ``strerror`` for a pipe, socket or device.
    """
    return open(path, mode, opener=_open_if_regular, **options)


def read_regular(path: str | Path) -> bytes:
    """Return the bytes of a regular file. Raises OSError as :func:`open_regular` does."""
    with open_regular(path) as file:
        return file.read()


def _open_if_regular(path: str, flags: int) -> int:
    kind = os.stat(path).st_mode
    if stat.S_ISDIR(kind):
        raise OSError(errno.EISDIR, "a folder, not a file", path)
    if not stat.S_ISREG(kind):
        name = _IRREGULAR.get(stat.S_IFMT(kind))
        raise OSError(errno.EINVAL, f"{name}, not a file" if name else "not a regular file", path)
    # O_NONBLOCK has no effect on a regular file; if a pipe has just replaced the file, opening it does not block
    return os.open(path, flags | os.O_NONBLOCK)
