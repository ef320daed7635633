"""Random selections, made before the samples of a source are written: images within limits, and absent findings."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cxr.base.seeds import stable_hash
from cxr.radvlm.instructions import tasks
from cxr.radvlm.instructions.mix import TRAIN, MixRow
from cxr.radvlm.instructions.source_block import Blocks
from cxr.radvlm.instructions.tasks import ABSENT, PRESENT, UNITS_BY_TASK, TaskOptions

ABSENCES_PER_SAMPLE = 1.0  # number of questions about absent findings per sample of abnormality_grounding
DrawnUnit = tuple[str, str, str, str, str | None]  # task, image, split of the source, split of the mix, target
Absence = tuple[str, str, str, int]  # split of the source, finding, image, hash that orders the selection


@dataclass(frozen=True)
class SampleDraws:
    """The random selections for one source. ``images_within_limit``: {(task, split): image ids}."""

    images_within_limit: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    absent: frozenset[tuple[str, str]] = frozenset()  # selected (image id, absent finding) pairs

    def keeps(self, task: str, split: str, image_id: str) -> bool:
        """Return whether an image was selected for a task and split. Without a limit, every image was selected."""
        kept_ids = self.images_within_limit.get((task, split))
        return kept_ids is None or image_id in kept_ids


def draw_samples(blocks: Blocks, rows: Sequence[MixRow], settings: TaskOptions) -> SampleDraws:
    """Select images and absent findings at random. ``blocks``: images of a source; ``rows``: its rows in a mix."""
    absent = next((row for row in rows if row.task == ABSENT), None)
    counted_rows = [row for row in rows if row is not absent and (row.limits or (absent and row.task == PRESENT))]
    drawn_tasks = {row.task for row in (*counted_rows, absent) if row is not None}
    if not drawn_tasks:
        return SampleDraws()
    units: list[DrawnUnit] = []
    pool: list[Absence] = []
    for inputs in blocks.each(sorted({tasks.LINES_BY_TASK[task] for task in drawn_tasks & tasks.LINES_BY_TASK.keys()})):
        splits = {image_id: row["split"] for image_id, row in inputs.images.items()}
        for row in counted_rows:
            for unit in UNITS_BY_TASK[row.task](inputs, settings):
                split = splits[unit.image_id]
                units.append((row.task, unit.image_id, split, row.split_of(split), unit.parts[0].target))
        for image_id, name, _ in tasks.find_absences(inputs) if absent else ():
            rank = stable_hash(settings.seed, "absent", inputs.source, image_id, name)
            pool.append((splits[image_id], name, image_id, rank))
    kept_images = dict(pair for row in counted_rows for pair in _images_within_limits(row, units, settings.seed))
    if not absent:
        return SampleDraws(kept_images)
    draws, repeat = SampleDraws(kept_images), {row.task: row.repeat for row in rows}
    present: Counter[tuple[str, str]] = Counter()
    for task, image_id, source_split, split, name in units:
        if task == PRESENT and draws.keeps(task, split, image_id):
            present[source_split, name or ""] += repeat[task] if split == TRAIN else 1
    absences = select_absences(pool, present, ABSENCES_PER_SAMPLE)
    absent_units = [(ABSENT, image_id, split, absent.split_of(split), name) for split, name, image_id, _ in absences]
    kept_images |= dict(_images_within_limits(absent, absent_units, settings.seed))
    return SampleDraws(kept_images, frozenset((image_id, name) for _, name, image_id, _ in absences))


def _images_within_limits(
    row: MixRow, units: Sequence[DrawnUnit], seed: int
) -> Iterator[tuple[tuple[str, str], frozenset[str]]]:
    """Yield ((task, split), image ids). Images are added in hash order until their questions reach the limit."""
    for limited_split, most in row.limits.items():
        key = row.task, limited_split
        counts = Counter(image_id for task, image_id, _, split, _ in units if (task, split) == key)
        kept_ids, count = set(), 0
        for image_id in sorted(counts, key=lambda image_id: stable_hash(seed, row.task, row.source, image_id)):
            if count < most:
                kept_ids.add(image_id)
                count += counts[image_id]
        yield key, frozenset(kept_ids)


def select_absences(pool: Iterable[Absence], present: Mapping[tuple[str, str], int], share: float) -> list[Absence]:
    """Select absent findings from ``pool`` so that the name of a finding does not reveal whether it is present. The
    quota of a finding in a split is ``share`` times its number in ``present``. If the pool cannot meet a quota, other
    findings of the split fill it."""
    quotas = {key: round(share * count) for key, count in present.items()}
    lacking: Counter[str] = Counter()
    for (split, _), quota in quotas.items():
        lacking[split] += quota
    selected: list[Absence] = []
    surplus: list[Absence] = []
    in_order = sorted(pool, key=lambda absence: (absence[3], absence[1], absence[2]))
    for absence in (absence for absence in in_order if absence[:2] in quotas):
        if quotas[absence[:2]] > 0:
            quotas[absence[:2]] -= 1
            lacking[absence[0]] -= 1
            selected.append(absence)
        else:
            surplus.append(absence)
    for absence in surplus:
        if lacking[absence[0]] > 0:
            lacking[absence[0]] -= 1
            selected.append(absence)
    return selected
