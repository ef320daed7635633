"""Files of secret keys."""

from pathlib import Path

from cxr.base.errors import UserError, existing_file

FEWEST_BYTES = 16
"""Shortest key; a shorter one could be found by trying."""


def secret(setting: str, path: str | None) -> bytes:
    """Return the key in the file that a setting names, stripped. Raises UserError without one, and for a short one."""
    held = Path(existing_file(setting, path)).read_bytes().strip()
    if len(held) < FEWEST_BYTES:
        raise UserError(
            f"{setting}: {path!r} holds {len(held)} bytes; fewer than {FEWEST_BYTES} bytes are guessed: make a longer "
            "key (head -c 32 /dev/urandom | base64 > key)"
        )
    return held
