"""Write Table 7 and the readers' agreement from their answers."""

from dataclasses import dataclass

import yaml

from cxr.base.paths import RESOURCES
from cxr.base.tables import read_table, write_table
from cxr.semisyn.readers import reading

RESOURCE_FILES = ("semisyn/paper_tables.yaml",)


@dataclass(frozen=True)
class ReadersMergeOptions:
    """readers: their number; replicates, interval: of the bootstrap by images."""

    readers: int
    replicates: int
    interval: float
    seed: int


def run(*, units: str, answers: str, table7: str, agreement: str, options: ReadersMergeOptions) -> None:
    """Write ``table7``, with the paper's values, and ``agreement``; ``units``: what each image is."""
    read = reading.count_readings(read_table(units), read_table(answers))
    printed = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))["table7"]
    bootstrap = {"replicates": options.replicates, "level": options.interval, "seed": options.seed}
    write_table(table7, reading.make_table7(read, printed, **bootstrap), reading.TABLE7)
    agreed = reading.agreement_table(read, options.readers, **bootstrap)
    write_table(agreement, agreed, reading.AGREEMENT)
