"""How a batch is shared by the GPUs of a training, which the settings check and the training follows."""


def shared(batch: int, micro_batch: int, ranks: int, halves: bool = False) -> int:
    """Return the largest micro-batch, at most ``micro_batch`` pairs, with which ``ranks`` GPUs come out even, or 0.

    Each GPU then takes the same number of micro-batches for an update of ``batch`` pairs; with ``halves`` a
    micro-batch has as many positives as negatives.
    """
    share, rest = divmod(batch, ranks)
    if rest:
        return 0
    fitting = (size for size in range(min(micro_batch, share), 0, -1) if share % size == 0)
    return next((size for size in fitting if not (halves and size % 2)), 0)
