# Ablation: recall and yield of every threshold set and grid point, counted in one pass (masks_sweep) without masks.


rule ablation_table:
    input:
        sweep=expand("results/masks/sweep/{shard}.parquet", shard=PLAN.shards),
    output:
        table=report(
            "results/ablation/points.tsv",
            caption="../../report/ablation_points.rst",
            category="3 Recall",
            labels={"result": "every point (table)"},
        ),
    log:
        "logs/ablation/points.log",
    benchmark:
        "results/benchmarks/ablation/points.tsv"
    localrule: True
    conda:
        "../../envs/ablation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(10),
    params:
        **job("reporting.ablation.points.run_table"),
        options=PLAN.options["ablation"],
    message:
        "Recall and yield of every threshold set and grid point"
    script:
        "../../scripts/job.py"


rule ablation_charts:
    input:
        table="results/ablation/points.tsv",
    output:
        curves=report(
            "results/ablation/curves.png",
            caption="../../report/ablation_curves.rst",
            category="3 Recall",
            labels={"result": "recall and yield against each threshold"},
        ),
        recall_map=report(
            "results/ablation/map.png",
            caption="../../report/ablation_map.rst",
            category="3 Recall",
            labels={"result": "recall over two thresholds"},
        ),
    log:
        "logs/ablation/charts.log",
    benchmark:
        "results/benchmarks/ablation/charts.tsv"
    localrule: True
    conda:
        "../../envs/ablation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("reporting.ablation.charts.run_charts"),
        options=PLAN.options["ablation_charts"],
    message:
        "Figures of recall and yield over the thresholds"
    script:
        "../../scripts/job.py"


rule ablation:
    input:
        rules.ablation_table.output,
        rules.ablation_charts.output,
