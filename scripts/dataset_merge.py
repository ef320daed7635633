"""Dataset, merge: one file a split, sorted by study."""

from ils.core import run
from ils.dataset.stage import merge

run.start(snakemake.log[0])
merge(**snakemake.input, **snakemake.output)
