"""Random generators, seeded by the item (study, finding …) and the run's seed, never by process, shard or time."""

import hashlib
import random


def stable_hash(*parts: object) -> int:
    """Return a 64-bit hash of the parts, which is the same on every machine and in every process."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def make_rng(*parts: object) -> random.Random:
    """Return a generator seeded by the parts, for example ``make_rng(seed, study_id, "edema")``."""
    return random.Random(stable_hash(*parts))


def shard_of(subject_id: str, shards: int) -> int:
    """Return the shard number of a subject; on average, all shards get the same number of subjects."""
    return stable_hash("shard", subject_id) % shards


def shard_names(shards: int) -> list[str]:
    """Return the names of ``shards`` shards, such as "00" and "01". They depend only on the number of shards."""
    width = max(2, len(str(shards - 1)))
    return [f"{index:0{width}d}" for index in range(shards)]
