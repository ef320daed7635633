"""Script of every rule: call the function that ``job(…)`` in the rule's params names, with the rule's other values."""

from cxr.base.jobs import run_job

run_job(snakemake)
