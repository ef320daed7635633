"""Masks: Algorithm 1 on one shard at one threshold set, at every set in one pass, and the index of all masks."""

from ils.core import run

PARTS = {
    "masks_shard": "masks.stage.run_shard",
    "masks_index": "masks.index.run_index",
    "masks_sweep": "masks.sweep.run_shard",
}
run.part(snakemake, PARTS[snakemake.rule])
