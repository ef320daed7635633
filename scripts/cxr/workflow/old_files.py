"""Find and remove results of earlier settings: files of a run that no rule would make under the present settings.

For example, if ``cohort.shards`` changes from 8 to 2, ``results/reports/02.jsonl`` would otherwise stay, although 00
and 01 now hold its studies. Only files with a Snakemake record are removed, so a user's own file is never touched.
"""

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from cxr.base.errors import UserError, count_phrase
from cxr.workflow import snakemake_compat as compat
from cxr.workflow.folder import refuse_orphans, running_snakemakes

TARGET = "clean_old"
COHORT = "results/cohort/images.parquet"


class OldFiles:
    """Existing results that no rule would make now, with the logs and benchmarks of their jobs.
    ``shards_of``: function that returns the present shards for the path of a result and the wildcards of its rule."""

    def __init__(self, workflow, shards_of: Callable[[str, Mapping], Collection[str]]):
        self._records = records = compat.Records()
        outputs = [path for path in records.outputs() if path.startswith("results/") and os.path.lexists(path)]
        can_make = compat.output_test(workflow, shards_of)
        old = [path for path in outputs if not can_make(path)]
        logs = {log for path in old for log in records.logs(path)}
        if logs:
            logs -= {log for path in set(outputs) - set(old) for log in records.logs(path)}
        logs_and_benchmarks = [path for log in logs for path in (log, benchmark_of(log)) if os.path.lexists(path)]
        self.paths = sorted({*old, *logs_and_benchmarks})

    def announce(self) -> None:
        """Print the number and size of the old files and how to remove them, if there are any."""
        if self.paths:
            many = len(self.paths) > 1
            compat.print_message(
                f"{self._count_and_size()} of earlier settings still {'lie' if many else 'lies'} in results/ and "
                f"logs/: `snakemake -n {TARGET}` with the same options lists {'them' if many else 'it'}, "
                f"`snakemake {TARGET}` removes {'them' if many else 'it'}"
            )

    def clean(self, cohort_options: dict, is_dry_run: bool) -> None:
        """Print the paths of the old files and, except in a dry run, remove the files.

        Raises UserError if another run works in this folder, or if the cohort was made with other settings than
        ``cohort_options``. In the second case, results that are still in use would be taken for old ones.
        """
        params = self._records.params(COHORT)
        if params and repr(cohort_options) not in params:
            raise UserError(
                f"{COHORT} was made with other settings, so it is not known which files are old: give the options of "
                f"the last run (--configfile), or run with these settings first, then `snakemake {TARGET}`"
            )
        if not is_dry_run:
            if running_snakemakes(Path.cwd()):
                raise UserError("another Snakemake works in this folder: wait until it has ended, or end it")
            refuse_orphans(Path.cwd(), submits=False)
        for path in self.paths:
            compat.print_message(path)
        compat.print_message(
            f"{self._count_and_size()} of earlier settings {'would be removed' if is_dry_run else 'removed'}"
        )
        if not is_dry_run:
            for path in self.paths:
                _remove(Path(path))
            self._records.forget(self.paths)

    def _count_and_size(self) -> str:
        return f"{count_phrase(len(self.paths), 'file', 'files')} ({sum(map(_size, self.paths)) / 1e6:.1f} MB)"


def benchmark_of(log: str) -> str:
    """Return the benchmark file of the job that writes a log: "results/benchmarks/a/00.tsv" for "logs/a/00.log"."""
    return str(Path("results/benchmarks", Path(log).relative_to("logs")).with_suffix(".tsv"))


def _remove(path: Path) -> None:
    """Remove a file, link or folder, and the folders above it that are empty then."""
    shutil.rmtree(path) if _is_folder(path) else path.unlink()
    for folder in path.parents[:-1]:
        if any(folder.iterdir()):
            break
        folder.rmdir()


def _is_folder(path: str | Path) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _size(path: str) -> int:
    """Return the size in bytes of a file, of a link itself, or of all files in a folder."""
    if not _is_folder(path):
        return os.lstat(path).st_size
    return sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(path) for name in names)
