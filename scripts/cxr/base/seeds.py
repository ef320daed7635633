"""Random generators. Their seed depends on the item (seed, study, finding …), never on the process, shard or time."""

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
    """Return the zero-padded names of ``shards`` shards. Rules know them in advance, as only the number matters."""
    width = max(2, len(str(shards - 1)))
    return [f"{index:0{width}d}" for index in range(shards)]
