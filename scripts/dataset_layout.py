"""Dataset, layout: the layout of the authors' release."""

from ils.core import run
from ils.dataset.layout import write_release

run.start(snakemake.log[0])
write_release(**snakemake.input, **snakemake.output, pixels=snakemake.params.pixels)
