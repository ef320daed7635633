"""Phantom: make the embedded cohort and its truth."""

from ils.core import run
from ils.phantom.stage import Options
from ils.phantom.stage import run as make

options, attrs = run.begin(snakemake, Options)
make(**snakemake.output, options=options, attrs=attrs, threads=snakemake.threads)
