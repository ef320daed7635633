"""A rule's work: call the function that its ``job(…)`` names with the rule's inputs, outputs and params."""

from cxr.base.jobs import run_job

run_job(snakemake)
