"""Cohort: which images and reports go in, and what stops at the door."""

from ils.cohort.stage import Options
from ils.cohort.stage import run as build
from ils.core import run

options, attrs = run.begin(snakemake, Options)
build(**snakemake.output, options=options, attrs=attrs, threads=snakemake.threads)
