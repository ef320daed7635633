"""Dataset: instruction-answer pairs, one file a split, and the layout of the authors' release."""

from ils.core import run

PARTS = {
    "dataset_pairs": "dataset.stage.run",
    "dataset_layout": "dataset.layout.write_release",
    "dataset_release": "dataset.layout.import_release",
}
more = {name: snakemake.params.get(name) for name in ("pixels", "images")}
run.part(snakemake, PARTS[snakemake.rule], **more)
