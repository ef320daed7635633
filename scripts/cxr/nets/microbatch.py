"""How the GPUs of a training share a batch; both the settings' check and the training use it."""


def shared(batch: int, micro_batch: int, ranks: int, halves: bool = False) -> int:
    """Return the largest micro-batch, at most ``micro_batch`` pairs, that divides evenly over ``ranks`` GPUs, or 0.

    Each GPU then processes the same number of micro-batches per update of ``batch`` pairs. With ``halves`` each
    micro-batch has as many positives as negatives.
    """
    share, remainder = divmod(batch, ranks)
    if remainder:
        return 0
    fitting = (size for size in range(min(micro_batch, share), 0, -1) if share % size == 0)
    return next((size for size in fitting if not (halves and size % 2)), 0)
