"""Reports: section, sentences, findings with place and certainty."""

from ils.core import run
from ils.reports.stage import Options, run_shard

options, attrs = run.begin(snakemake, Options)
run_shard(**snakemake.input, **snakemake.output, options=options, attrs=attrs, threads=snakemake.threads)
