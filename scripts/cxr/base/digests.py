"""Keyed digests that replace identifiers in what is passed on."""

import hashlib
import hmac

LETTERS = {"subject_id": "p", "study_id": "s", "image_id": "i", "mask_id": "m"}
"""First letter of the digest that replaces an identifier, so that no digest reads as a number."""
DIGITS = 16
"""Hexadecimal digits of such a digest: 64 bits, so that a million digests practically never collide."""


def keyed_digest(key: bytes, field: str, value: str) -> str:
    """Return the digest of an identifier under a secret key; ``field``: one of :data:`LETTERS`."""
    return keyed_text_digest(key, field, value, LETTERS[field])


def keyed_text_digest(key: bytes, field: str, value: str, letter: str) -> str:
    """Return the digest of any text under a secret key, after a letter; ``field``: what the text is."""
    digest = hmac.new(key, f"{field}\0{value}".encode(), hashlib.sha256).hexdigest()
    return letter + digest[:DIGITS]
