"""Keys under which answers are stored; the reports engine needs them without the packages of the answer cache."""

import hashlib


def texts_key(texts: list[str]) -> str:
    """Return the key under which the answer for a list of texts is stored: equal lists are asked once."""
    return hashlib.blake2b("\n".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
