"""Dataset: instruction-answer pairs of one shard, one file a split, and the layout of the authors' release."""

from ils.core import run
from ils.dataset import layout, stage

if snakemake.rule == "dataset_shard":
    options, attrs = run.begin(snakemake, stage.Options)
    stage.run_shard(**snakemake.input, **snakemake.output, options=options, attrs=attrs, threads=snakemake.threads)
else:
    run.start(snakemake.log[0])
    join = {"dataset_merge": stage.merge, "dataset_layout": layout.write_release}[snakemake.rule]
    settings = {name: value for name, value in snakemake.params.items() if name != "code"}
    join(**snakemake.input, **snakemake.output, **settings)
