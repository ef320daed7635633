# Cohort: accepted images and reports, and exclusions with reasons.


rule cohort_shards:
    input:
        **PLAN.cohort_files,
    output:
        shards=expand("results/cohort/{shard}.parquet", shard=PLAN.shards),
        images="results/cohort/images.parquet",
        excluded="results/cohort/excluded.parquet",
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
        # the manifest may be another rule's output: it is named once, among the inputs
        options={key: value for key, value in PLAN.options["cohort"].items() if key != "manifest"},
        manifest=lambda wildcards, input: input.get("manifest", ""),
    message:
        "Cohort: accept images and reports, exclude others with a reason"
    script:
        "../../scripts/job.py"


rule cohort:
    input:
        rules.cohort_shards.output,
