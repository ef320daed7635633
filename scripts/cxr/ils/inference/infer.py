"""The inference stage: give a trained model the instructions of a split, and write its answers and masks."""

import logging
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from pathlib import Path

from cxr.base.errors import StoreError, UserError, count_phrase
from cxr.base.faults import Failures, failure_kind
from cxr.base.hdf5 import ShardWriter
from cxr.base.jobs import progress
from cxr.base.tables import write_lines
from cxr.ils.inference.asker import Asker, Reply
from cxr.ils.inference.settings import InferenceOptions
from cxr.ils.rosalia.samples import Pairs, Sample
from cxr.ils.rosalia.sources import NO_WORDING, PersonaWording, open_image_source

log = logging.getLogger("cxr")
NOT_ASKED = "not_asked"
"""Failure code of a pair whose instruction has no wording of the persona. The pair is excluded from the scores."""


def run_split(
    *,
    model: str | Path,
    lines: str | Path,
    frames: list[str] | list[Path] | None = None,
    pictures: str | Path | None = None,
    wordings: str | Path | None = None,
    predictions: str | Path,
    prediction_masks: str | Path,
    options: InferenceOptions,
    attrs: dict,
    compute: dict | None = None,
    may_be_empty: bool = False,
) -> None:
    """Give a model every instruction of the split ``lines``, in the ``wordings`` of ``options.persona`` if it is set.

    The output ``predictions`` is JSON Lines in the order of ``lines``. Its fields are pair_id, answer (null if the
    setting ``text`` is false), mask (the pair_id, or null without [SEG]), note (``no_seg``, ``several_seg``), failure
    and detail (if the model failed), and instruction (the persona's wording). The output ``prediction_masks`` is HDF5
    (key pair_id) with the packed field mask (size, size). ``may_be_empty``: whether the split may have no pairs. Raises
    UserError if the model is missing, ``lines`` is damaged or no pair could be asked, and Broken if too many fail.
    """
    size = options.size
    about = attrs | {"frame": f"{size} x {size} pixels, the frame resized; right is on the image's left"}
    empty = {"key": "pair_id", "attrs": about, "empty": {"mask": ((size, size), bool)}}
    if may_be_empty and not Path(lines).stat().st_size:
        with ShardWriter(prediction_masks, **empty):
            write_lines(predictions, [])
        return
    asker = Asker.load(model, options, compute)
    wording = PersonaWording(wordings, options.persona, options.seed) if wordings and options.persona else None
    images, how = open_image_source(frames, pictures), asker.pair_options()
    pairs = Pairs(lines=str(lines), tokens=asker.tokens, options=how, pictures=images, wording=wording)
    faults: Counter[str] = Counter()
    with ShardWriter(prediction_masks, **empty) as writer:
        failures = Failures("inference", len(pairs), compute)
        replies = progress(_replies(asker, pairs, failures), len(pairs), "pairs asked")
        write_lines(predictions, _make_lines(replies, writer, faults, pairs if pairs.wording else None))
    if faults:
        without = count_phrase(faults.total(), f"of {len(pairs)} pairs has", f"of {len(pairs)} pairs have")
        log.warning("%s no prediction: the field detail in the predictions gives the reasons", without)


def split_by_images(images: Sequence[int], count: int) -> Iterator[range]:
    """Yield ranges of consecutive rows. Each has all rows of ``count`` images, and the last may have fewer images.

    ``images``: number of each row's image. Rows of one image are consecutive.
    """
    ends = [row for row in range(1, len(images)) if images[row] != images[row - 1]]
    edges = [0, *ends[count - 1 :: count], len(images)]
    return (range(first, end) for first, end in pairwise(edges) if first < end)


def _read_samples(pairs: Pairs, rows: range) -> list[tuple[str, Sample | str]]:
    samples: list[tuple[str, Sample | str]] = []
    for row in rows:
        pair_id = pairs.lines[row]["pair_id"]
        try:
            samples.append((pair_id, pairs[row]))
        except UserError as error:
            if isinstance(error.__context__, StoreError):  # a damaged file or failing machine, not the pair
                raise error.__context__ from None
            samples.append((pair_id, str(error).removeprefix(f"pair {pair_id}: ")))
    return samples


def _replies(asker: Asker, pairs: Pairs, failures: Failures) -> Iterator[tuple[str, Reply]]:
    """Yield (pair_id, reply) in row order. A thread reads ahead. All pairs of a failed image count as one failure."""
    last: Exception | None = None
    with ThreadPoolExecutor(1) as reader:
        reading = deque()
        for rows in chain(split_by_images(pairs.lines.image.tolist(), asker.batch), [None]):
            if rows:
                reading.append(reader.submit(_read_samples, pairs, rows))
            if len(reading) > 1 or not rows:
                read = reading.popleft().result()
                samples = [sample for _, sample in read if isinstance(sample, Sample)]
                replies = iter(asker.ask(samples, lambda logits: logits > 0))
                for pair_id, entry in read:
                    reply = next(replies) if isinstance(entry, Sample) else Reply(fault=entry)
                    if reply.error is None:
                        failures.passed()
                    elif reply.error is not last:
                        failures.note(failure_kind(reply.error), reply.error)
                    last = reply.error
                    yield pair_id, reply


def _make_lines(
    replies: Iterable[tuple[str, Reply]], writer: ShardWriter, faults: Counter[str], reworded: Pairs | None
) -> Iterator[dict]:
    number = 0
    for pair_id, reply in replies:
        entry = {"pair_id": pair_id, "answer": reply.answer, "mask": None if reply.mask_values is None else pair_id}
        if reply.fault:
            faults[reply.fault] += 1
            entry |= {"failure": NOT_ASKED if reply.fault == NO_WORDING else "failed", "detail": reply.fault}
        if reworded and reply.fault != NO_WORDING:
            entry["instruction"] = reworded.wording.text(reworded.lines[number], 0)
        number += 1
        if reply.mask_values is not None:
            writer.append(pair_id, mask=reply.mask_values)
        yield entry | ({"note": reply.note} if reply.note else {})
    if faults.total() == number:
        raise UserError(
            f"none of {number} pairs could be asked, the first because of {next(iter(faults))!r}: remove this cause"
        )
