# Cohort: accepted images and reports, and excluded ones with reasons.


rule cohort_shards:
    input:
        **PLAN.cohort_files,
    output:
        shards=expand("results/cohort/{shard}.parquet", shard=PLAN.shards),
        images="results/cohort/images.parquet",
        excluded="results/cohort/excluded.parquet",
        files_read="results/cohort/files_read/cohort.parquet",
    log:
        "logs/cohort/cohort.log",
    benchmark:
        "results/benchmarks/cohort/cohort.tsv"
    conda:
        "../../envs/cohort.yaml"
    threads: 2
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(240),
    params:
        **job("imaging.cohort.make_cohort.run"),
        options=cohort_options(PLAN.options),
        manifest=lambda wildcards, input: input.get("manifest", ""),
    message:
        "Cohort: accept images and reports, and exclude all others with a reason"
    script:
        "../../scripts/job.py"


rule cohort:
    input:
        rules.cohort_shards.output,
