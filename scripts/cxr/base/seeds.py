"""Random generators seeded by what is drawn (seed, study, finding …), never by process, shard or time."""

import hashlib
import random


def stable_hash(*parts: object) -> int:
    """Return a 64-bit hash of the parts, the same on every machine and in every process."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def make_rng(*parts: object) -> random.Random:
    """Return a generator seeded by the parts, for example ``make_rng(seed, study_id, "edema")``."""
    return random.Random(stable_hash(*parts))


def shard_of(subject_id: str, shards: int) -> int:
    """Return the shard of a subject; each shard gets the same fraction of subjects."""
    return stable_hash("shard", subject_id) % shards


def shard_names(shards: int) -> list[str]:
    """Return the zero-padded names of all shards. They depend only on the number, so no checkpoint rule is needed."""
    width = max(2, len(str(shards - 1)))
    return [f"{index:0{width}d}" for index in range(shards)]
