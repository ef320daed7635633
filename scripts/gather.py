"""Gather: join what every shard of a stage, or every threshold set, excluded into one table."""

from ils.core import ledger, run

run.start(snakemake.log[0])
ledger.gather(
    snakemake.input.excluded, snakemake.input.images, snakemake.output.excluded, snakemake.params.get("thresholds")
)
