# Exclusions: what stopped at a stage and why, joined over its shards or its threshold sets. Nothing is lost in silence.


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
        **job("base.ledger.gather"),
        thresholds=lambda wildcards: PLAN.exclusions[wildcards.stage]["thresholds"],
    message:
        "What stopped at the stage {wildcards.stage}, and why"
    script:
        "../scripts/job.py"
