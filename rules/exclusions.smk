# Exclusions: one table per stage with its excluded images and the reasons, joined over shards or threshold sets.
STAGES_BY_SET = ["masks", "dataset"]
STAGES_BY_SHARD = [
    "frames", "reports", "organs", "anomaly", "anatomy", "boxes", "semisyn/healthy", "semisyn/placement",
]  # fmt: skip


rule exclusions:
    input:
        excluded=lambda wildcards: expand(
            "results/{stage}/{part}excluded.parquet",
            stage=wildcards.stage,
            part=(
                [f"{name}/" for name in PLAN.build]
                if wildcards.stage in STAGES_BY_SET
                else [f"{shard}." for shard in PLAN.shards]
            ),
        ),
        images="results/cohort/images.parquet",
    output:
        gathered="results/{stage}/excluded.parquet",
    log:
        "logs/{stage}/gather.log",
    benchmark:
        "results/benchmarks/{stage}/gather.tsv"
    wildcard_constraints:
        stage="|".join(STAGES_BY_SHARD + STAGES_BY_SET),
    localrule: True
    conda:
        "../envs/gather.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(5),
    params:
        **job("base.ledger.gather_exclusions"),
        thresholds=lambda wildcards: PLAN.build if wildcards.stage in STAGES_BY_SET else [],
    message:
        "Excluded images of the stage {wildcards.stage}, with reasons"
    script:
        "../scripts/job.py"
