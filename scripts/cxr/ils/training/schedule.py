"""The learning rate of each update: a linear rise from zero, then a linear fall to zero."""


def learning_rate(update: int, largest: float, warmup: int, total: int) -> float:
    """Return the rate of an update (counted from 0), as DeepSpeed's WarmupDecayLR with warmup_type linear.

    That schedule counts from the update before, so the first two updates have rate 0. It reaches ``largest`` at
    ``warmup`` and 0 at ``total``, both in updates.
    """
    done, warmup = max(0, update - 1), max(2, warmup)  # that schedule's warm-up takes at least two updates
    if done < warmup:
        return largest * done / warmup
    return largest * max(0.0, (total - done) / max(1.0, total - warmup))
