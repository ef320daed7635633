"""Select the samples of a test set to ask, reproducibly by their ids."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, write_lines, write_rows
from cxr.vlm.columns import SELECTED
from cxr.vlm.samples import parse_sample

log = logging.getLogger("cxr")


def select_samples(lines: Iterable[Mapping], most: int) -> set[str]:
    """Return the ids of at most ``most`` samples per task, those with the smallest hashes of their ids."""
    keys_by_task: dict[str, list[tuple[int, str]]] = {}
    for line in lines:
        sample = parse_sample(line)
        key = stable_hash("asked", sample.sample_id), sample.sample_id
        keys_by_task.setdefault(sample.task, []).append(key)
    return {name for keys in keys_by_task.values() for _, name in sorted(keys)[:most]}


def run(*, lines: str, selection: str, counts: str, most: int, among: str | list[str] = "") -> None:
    """Write the selected ``lines`` to ``selection``, and their numbers to ``counts``. At most ``most`` samples per task
    are selected. If ``among`` is a file, the ids are selected from that file instead of ``lines``."""
    selected_names = select_samples(read_lines(among[0] if among else lines), most)
    total_counts, selected_counts = Counter(), Counter()

    def selected_lines() -> Iterable[Mapping]:
        for line in read_lines(lines):
            sample = parse_sample(line)
            total_counts[sample.task, sample.source] += 1
            if sample.sample_id in selected_names:
                selected_counts[sample.task, sample.source] += 1
                yield line

    write_lines(selection, selected_lines())
    rows = [(*key, number, selected_counts[key]) for key, number in sorted(total_counts.items())]
    write_rows(counts, rows, SELECTED)
    log.info("%d of %d samples are asked", selected_counts.total(), total_counts.total())
