"""Dataset: instruction-answer pairs of one shard, one file a split, and the layout of the authors' release."""

from ils.core import run

PARTS = {
    "dataset_shard": "dataset.stage.run_shard",
    "dataset_merge": "dataset.stage.merge",
    "dataset_layout": "dataset.layout.write_release",
}
run.part(snakemake, PARTS[snakemake.rule], pixels=snakemake.params.get("pixels"))
