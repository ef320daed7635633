# Ablation: what thresholds do. Every named set and grid point from the one pass of masks_sweep; none of their masks.


rule ablation_table:
    input:
        sweep=expand("results/masks/sweep/{shard}.parquet", shard=SHARDS),
    output:
        table=report(
            "results/ablation/points.tsv",
            caption="../report/ablation_points.rst",
            category="3 Recall",
            labels={"result": "every point (table)"},
        ),
    log:
        "logs/ablation/points.log",
    benchmark:
        "results/benchmarks/ablation/points.tsv"
    localrule: True
    conda:
        "../envs/ablation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(10),
    params:
        options=OPTIONS["ablation"],
        code=code_digest("ablation.py", "ils.ablation.stage"),
    script:
        "../scripts/ablation.py"


rule ablation_charts:
    input:
        table="results/ablation/points.tsv",
    output:
        curves=report(
            "results/ablation/curves.png",
            caption="../report/ablation_curves.rst",
            category="3 Recall",
            labels={"result": "recall and yield against each threshold"},
        ),
        recall_map=report(
            "results/ablation/map.png",
            caption="../report/ablation_map.rst",
            category="3 Recall",
            labels={"result": "recall over two thresholds"},
        ),
    log:
        "logs/ablation/charts.log",
    benchmark:
        "results/benchmarks/ablation/charts.tsv"
    localrule: True
    conda:
        "../envs/ablation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        options=OPTIONS["ablation_charts"],
        code=code_digest("ablation.py", "ils.ablation.charts"),
    script:
        "../scripts/ablation.py"


rule ablation:
    input:
        rules.ablation_table.output,
        rules.ablation_charts.output,
