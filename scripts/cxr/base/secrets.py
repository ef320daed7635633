"""Reading secret keys from files."""

from pathlib import Path

from cxr.base.errors import UserError, existing_file

MIN_BYTES = 16
"""Shortest accepted key; a shorter one could be guessed by trial."""


def read_secret(setting: str, path: str | None) -> bytes:
    """Return the key in the file that a setting names, stripped. Raises UserError if it is missing or too short."""
    key = Path(existing_file(setting, path)).read_bytes().strip()
    if len(key) < MIN_BYTES:
        raise UserError(
            f"{setting}: {path!r} holds {len(key)} bytes; fewer than {MIN_BYTES} bytes can be guessed: make a "
            "longer key (head -c 32 /dev/urandom | base64 > key)"
        )
    return key
