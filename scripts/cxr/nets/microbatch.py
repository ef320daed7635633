"""Split a training batch over GPUs. Both the check of the settings and the training use this module."""


def fit_micro_batch(batch: int, micro_batch: int, ranks: int, balanced: bool = False) -> int:
    """Return the largest micro-batch, at most ``micro_batch`` pairs, that divides evenly over ``ranks`` GPUs, or 0.

    Each GPU then processes the same number of micro-batches per step of ``batch`` pairs. With ``balanced`` the
    micro-batch is even, so that it can hold as many positives as negatives.
    """
    share, remainder = divmod(batch, ranks)
    if remainder:
        return 0
    fitting = (size for size in range(min(micro_batch, share), 0, -1) if share % size == 0)
    return next((size for size in fitting if not (balanced and size % 2)), 0)
