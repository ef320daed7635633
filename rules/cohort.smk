# Cohort: which images and reports go in, and what stops at the door.


rule cohort_shards:
    input:
        **COHORT,
    output:
        shards=expand("results/cohort/{shard}.parquet", shard=SHARDS),
        images="results/cohort/images.parquet",
        excluded="results/cohort/excluded.parquet",
    log:
        "logs/cohort/cohort.log",
    benchmark:
        "results/benchmarks/cohort/cohort.tsv"
    conda:
        "../envs/cohort.yaml"
    threads: 2
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(240),
    params:
        # the manifest may be another rule's output: it is named once, among the inputs
        options={key: value for key, value in OPTIONS["cohort"].items() if key != "manifest"},
        manifest=lambda wildcards, input: input.get("manifest", ""),
        code=code_digest("cohort.py"),
    script:
        "../scripts/cohort.py"


rule cohort:
    input:
        rules.cohort_shards.output,
