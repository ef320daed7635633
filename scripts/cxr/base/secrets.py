"""Secret keys, and keyed digests that replace identifiers in data passed to others."""

import hashlib
import hmac
from pathlib import Path

from cxr.base.errors import UserError, existing_file

MIN_BYTES = 16  # minimum length of a key; a shorter key could be guessed by trial
LETTERS = {"subject_id": "p", "study_id": "s", "image_id": "i", "mask_id": "m"}
"""{identifier: first letter of the digest that replaces it}. The letter ensures that no digest looks like a number."""
DIGITS = 16  # hexadecimal digits of a digest: 64 bits, so that a million digests practically never collide


def read_secret(setting: str, path: str | None) -> bytes:
    """Return the key in the file ``path``, the value of ``setting``. Raises UserError for a missing or short key."""
    key = Path(existing_file(setting, path)).read_bytes().strip()
    if len(key) < MIN_BYTES:
        raise UserError(
            f"{setting}: {path!r} holds {len(key)} bytes; fewer than {MIN_BYTES} bytes can be guessed: make a "
            "longer key (head -c 32 /dev/urandom | base64 > key)"
        )
    return key


def keyed_digest(key: bytes, field: str, value: str, letter: str = "") -> str:
    """Return a letter, by default that of ``field`` ("p" for "subject_id"), and then the keyed digest of ``value``."""
    digest = hmac.new(key, f"{field}\0{value}".encode(), hashlib.sha256).hexdigest()
    return (letter or LETTERS[field]) + digest[:DIGITS]
