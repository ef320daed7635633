# Tables: the paper's tables for this data, numbers of images at each stage, and scores against the known ground truth.


rule tables_counts:
    input:
        images="results/cohort/images.parquet",
        excluded=expand("results/{stage}/excluded.parquet", stage=STAGES),
        shards=[
            *expand("results/{stage}/{shard}.parquet", stage=("cohort", "boxes"), shard=PLAN.shards),
            *expand("results/{stage}/{shard}.h5", stage=("frames", "organs", "anomaly", "anatomy"), shard=PLAN.shards),
            *expand("results/reports/{shard}.jsonl", shard=PLAN.shards),
        ],
        studies=expand("results/masks/{thresholds}/{shard}.studies.parquet", thresholds=PLAN.built, shard=PLAN.shards),
        findings=expand("results/masks/{thresholds}/findings.parquet", thresholds=PLAN.build),
        lines=expand("results/dataset/{thresholds}/{split}.jsonl", thresholds=PLAN.build, split=PLAN.splits),
    output:
        splits_table=report(
            "results/tables/splits.tsv",
            caption="../../report/splits.rst",
            category="2 Dataset",
            labels={"result": "pairs per split (Tables 10-12)"},
        ),
        funnel_table=report(
            "results/tables/funnel.tsv",
            caption="../../report/funnel.rst",
            category="1 From images to pairs",
            labels={"result": "funnel (table)"},
        ),
        conservation_table=report(
            "results/tables/conservation.tsv",
            caption="../../report/conservation.rst",
            category="1 From images to pairs",
            labels={"result": "conservation"},
        ),
        counts_table=report(
            "results/tables/counts.tsv",
            caption="../../report/counts.rst",
            category="2 Dataset",
            labels={"result": "counts"},
        ),
    log:
        "logs/tables/counts.log",
    benchmark:
        "results/benchmarks/tables/counts.tsv"
    conda:
        "../../envs/tables.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(30),
    params:
        **job("reporting.tables.counts.run_counts"),
        options=PLAN.options["counts"],
        thresholds=PLAN.build,
    message:
        "Tables: counts, splits, and excluded images per stage"
    script:
        "../../scripts/job.py"


rule tables_recall:
    input:
        sweep=expand("results/masks/sweep/{shard}.parquet", shard=PLAN.shards),
    output:
        recall_table=report(
            "results/tables/recall.tsv",
            caption="../../report/recall.rst",
            category="3 Recall",
            labels={"result": "every threshold set (table, Table 8)"},
        ),
    log:
        "logs/tables/recall.log",
    benchmark:
        "results/benchmarks/tables/recall.tsv"
    localrule: True
    conda:
        "../../envs/tables.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(10),
    params:
        **job("reporting.tables.paper.run_recall"),
        sets=list(PLAN.sets),
    message:
        "Table of recall for every threshold set"
    script:
        "../../scripts/job.py"


# Only the embedded cohort has a known ground truth.
rule tables_truth:
    input:
        truth_lines="results/phantom/truth.jsonl",
        truth_masks="results/phantom/truth.h5",
        reports=expand("results/reports/{shard}.jsonl", shard=PLAN.shards),
        findings=expand("results/masks/{thresholds}/findings.parquet", thresholds=PLAN.build),
        masks=expand("results/masks/{thresholds}/{shard}.h5", thresholds=PLAN.built, shard=PLAN.shards),
    output:
        truth_table=report(
            "results/tables/truth.tsv",
            caption="../../report/truth.rst",
            category="5 Comparison with the truth",
            labels={"result": "comparison with the known truth"},
        ),
    log:
        "logs/tables/truth.log",
    benchmark:
        "results/benchmarks/tables/truth.tsv"
    conda:
        "../../envs/tables.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(10),
    params:
        **job("reporting.tables.truth.run_truth"),
        thresholds=PLAN.build,
    message:
        "Table of the embedded cohort compared with its ground truth"
    script:
        "../../scripts/job.py"


rule tables:
    input:
        expand("results/tables/{table}.tsv", table=PLAN.reporting.tables),
