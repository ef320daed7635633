"""Secret keys, and the digests under such a key that replace identifiers in what is passed on."""

import hashlib
import hmac
from pathlib import Path

from cxr.base.errors import UserError, existing_file

MIN_BYTES = 16  # shortest accepted key; a shorter one could be guessed by trial
LETTERS = {"subject_id": "p", "study_id": "s", "image_id": "i", "mask_id": "m"}
"""First letter of the digest that replaces an identifier, so that no digest reads as a number."""
DIGITS = 16  # hexadecimal digits of such a digest: 64 bits, so that a million digests practically never collide


def read_secret(setting: str, path: str | None) -> bytes:
    """Return the key in the file that a setting names, stripped. Raises UserError if it is missing or too short."""
    key = Path(existing_file(setting, path)).read_bytes().strip()
    if len(key) < MIN_BYTES:
        raise UserError(
            f"{setting}: {path!r} holds {len(key)} bytes; fewer than {MIN_BYTES} bytes can be guessed: make a "
            "longer key (head -c 32 /dev/urandom | base64 > key)"
        )
    return key


def keyed_digest(key: bytes, field: str, value: str, letter: str = "") -> str:
    """Return the digest of a text under a secret key, after a letter; ``field``: what it is, by default in LETTERS."""
    digest = hmac.new(key, f"{field}\0{value}".encode(), hashlib.sha256).hexdigest()
    return (letter or LETTERS[field]) + digest[:DIGITS]
