"""The frames stage: decodes the cohort's images of one shard to frames."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cxr.base.errors import UserError
from cxr.base.faults import Failures
from cxr.base.hdf5 import FRAME_SIZE, ShardWriter
from cxr.base.jobs import log, progress
from cxr.base.ledger import Ledger
from cxr.base.source_files import state_row, write_states
from cxr.base.tables import read_table, write_corrected
from cxr.base.workers import map_ahead
from cxr.imaging.frames.decoding import SPIKE_RANGE, SPIKE_SHARE
from cxr.imaging.frames.isolate import Workers
from cxr.imaging.frames.settings import FramesSettings

MAX_MEMORY_MB = 4096  # maximum memory of a decoding process, MB; an image that needs more is undecodable
TIMEOUT_S = 300  # maximum time for decoding an image, seconds; an image that takes longer is undecodable


class Candidate(NamedTuple):
    """An accepted image of the cohort."""

    image_id: str
    study_id: str
    path: str


def group_candidates(cohort: str, per_study: str) -> list[list[Candidate]]:
    """Return groups of candidates from the table ``cohort``, sorted from best to worst. One image per group is used.

    A group is a study, or a single image if ``per_study`` is "all".
    """
    table = read_table(cohort).sort("study_id", "rank", "image_id")
    groups: dict[str, list[Candidate]] = {}
    for candidate in map(Candidate._make, table.select(Candidate._fields).iter_rows()):
        groups.setdefault(candidate.image_id if per_study == "all" else candidate.study_id, []).append(candidate)
    return list(groups.values())


def run_shard(
    *,
    cohort: str,
    output: str,
    excluded: str,
    corrected: str,
    options: FramesSettings,
    burned_in: str,
    attrs: dict,
    threads: int,
    compute: dict | None = None,
    files_read: str | None = None,
) -> None:
    """Write the frames of a shard, and the table of its excluded images.

    Each study gives its first decodable image or all images (``options.per_study``). ``burned_in``: treatment of
    burned-in text (``privacy.burned_in``); ``corrected``: output table of images that are used although their header is
    wrong; ``attrs``: provenance, attributes of ``output``; ``compute``: the settings section ``compute``;
    ``files_read``: output table with size, time and CRC-32 of the files read. Raises Broken if decoding fails and no
    file is to blame.
    """
    groups = group_candidates(cohort, options.per_study)
    ledger = Ledger("frames")
    num_candidates = sum(map(len, groups))
    failures = Failures("frames", num_candidates, compute)
    narrow, missing, corrections = 0, 0, []
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    # Frames arrive in any order but are written by id. They wait in a file, so that large shards need little memory.
    spool = tempfile.TemporaryFile(dir=Path(output).parent)  # noqa: SIM115
    frame_rows: dict[str, tuple[int, np.ndarray, tuple[int, int]]] = {}
    states: list[tuple] = []

    def try_group(group: list[Candidate]) -> list[tuple]:
        """Return (candidate, *worker's answer) for each. Candidates after the first usable image are not read."""
        answers: list[tuple] = []
        for candidate in group:
            if answers and answers[-1][1] == "frame":
                answers += [(unused, "rejected", "not_selected", "") for unused in group[len(answers) :]]
                break
            # the state is taken before reading, so that the next run notices a later change
            states.append(state_row(candidate.image_id, candidate.path))
            answers.append((candidate, *workers.ask(candidate.path)))
        return sorted(answers, key=lambda answer: answer[1] == "frame")

    how = options.as_dict() | {"burned_in": burned_in, "max_memory_mb": MAX_MEMORY_MB}
    with Workers(how, TIMEOUT_S) as workers, ThreadPoolExecutor(max(1, threads)) as pool:
        results = map_ahead(pool, try_group, groups, 4 * max(1, threads))
        for (image_id, study_id, _), outcome, *answer in chain.from_iterable(progress(results, len(groups), "frames")):
            failures.note(answer[1]) if outcome == "failed" else failures.passed()
            if outcome == "frame":
                frame, affine, shape, is_squeezed, notes = answer
                ledger.accept(image_id)
                frame_rows[image_id] = len(frame_rows), affine, shape
                spool.write(frame.tobytes())
                narrow += is_squeezed
                names = {"image_id": image_id, "study_id": study_id}
                corrections += [names | {"correction": note} for note in notes]
            else:
                ledger.exclude(image_id, study_id, *answer)
                missing += answer[0] == "missing_file"
    if missing == num_candidates > 1:
        raise UserError(
            f"none of the {missing} images of this shard exists any more: mount their disk, or if they were deleted, "
            "remake the cohort (snakemake cohort --forcerun cohort_shards)"
        )
    if narrow:
        counts = narrow, len(ledger.accepted), SPIKE_RANGE, SPIKE_SHARE
        log.warning(
            "%d of %d images: more than %g of the grey range is used by less than %g of the pixels, such as markers; "
            "set frames.window to percentile to give the chest more contrast", *counts,
        )  # fmt: skip
    empty = {"image": ((FRAME_SIZE, FRAME_SIZE), np.uint8), "to_original": ((2, 3), np.float64)}
    empty |= {"original_shape": ((2,), np.int32)}
    units = {"image": "grey level 0..255", "original_shape": "rows, columns"}
    units |= {"to_original": "original pixels from frame pixels, x and y, pixel centres at .5"}
    with spool, ShardWriter(output, attrs=attrs, units=units, pictures=("image",), empty=empty) as writer:
        for image_id in sorted(frame_rows):
            place, affine, shape = frame_rows[image_id]
            spool.seek(place * FRAME_SIZE**2)
            frame = np.frombuffer(spool.read(FRAME_SIZE**2), np.uint8).reshape(FRAME_SIZE, FRAME_SIZE)
            writer.append(image_id, image=frame, to_original=affine, original_shape=np.array(shape, np.int32))
    write_corrected(corrected, corrections)
    ledger.finish(excluded, (candidate.image_id for group in groups for candidate in group))
    if files_read:
        write_states(files_read, states)
