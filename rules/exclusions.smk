# Exclusions: the images that stopped at a stage, with reasons, joined over its shards or its threshold sets.


rule exclusions:
    input:
        excluded=lambda wildcards: PLAN.exclusions[wildcards.stage]["files"],
        images="results/cohort/images.parquet",
    output:
        gathered="results/{stage}/excluded.parquet",
    log:
        "logs/{stage}/gather.log",
    benchmark:
        "results/benchmarks/{stage}/gather.tsv"
    wildcard_constraints:
        stage="|".join(PLAN.exclusions),
    localrule: True
    conda:
        "../envs/gather.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(5),
    params:
        **job("base.ledger.gather_exclusions"),
        thresholds=lambda wildcards: PLAN.exclusions[wildcards.stage]["thresholds"],
    message:
        "Excluded images of the stage {wildcards.stage}, with reasons"
    script:
        "../scripts/job.py"
