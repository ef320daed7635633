"""Dataset: instruction-answer pairs of one shard."""

from ils.core import run
from ils.dataset.stage import Options, run_shard

options, attrs = run.begin(snakemake, Options)
run_shard(**snakemake.input, **snakemake.output, options=options, attrs=attrs, threads=snakemake.threads)
