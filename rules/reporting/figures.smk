# Figures: overlay panels of some studies, and charts of the instruction-answer pairs, also for the report.


rule figures_panels:
    input:
        findings=expand("results/masks/{{thresholds}}/{shard}.findings.parquet", shard=PLAN.shards),
        masks=expand("results/masks/{{thresholds}}/{shard}.h5", shard=PLAN.shards),
        boxes=expand("results/boxes/{shard}.parquet", shard=PLAN.shards),
        maps=expand("results/{stage}/{shard}.h5", stage=("frames", "organs", "anomaly", "anatomy"), shard=PLAN.shards),
        lines=expand("results/dataset/{{thresholds}}/{split}.jsonl", split=PLAN.splits),
    output:
        panels=report(
            directory("results/figures/{thresholds}/panels"),
            patterns=["{image}.jpg"],
            caption="../../report/panel.rst",
            category="4 Cases",
            subcategory="every step of a study, {thresholds}",
            labels={"image": "{image}"},
        ),
    log:
        "logs/figures/{thresholds}/panels.log",
    benchmark:
        "results/benchmarks/figures/{thresholds}/panels.tsv"
    localrule: True
    conda:
        "../../envs/figures.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("reporting.figures.draw_figures.run_panels"),
        options=PLAN.options["figures"] | {"seed": PLAN.settings.seed},
    message:
        "Overlays of some studies, thresholds {wildcards.thresholds}"
    script:
        "../../scripts/job.py"


rule figures_charts:
    input:
        splits_table="results/tables/splits.tsv",
    output:
        distribution=report(
            "results/figures/{thresholds}/distribution.png",
            caption="../../report/distribution.rst",
            category="2 Dataset",
            labels={"result": "pairs per lesion type (Fig. 4)", "thresholds": "{thresholds}"},
        ),
        shares=report(
            "results/figures/{thresholds}/shares.png",
            caption="../../report/shares.rst",
            category="2 Dataset",
            labels={"result": "lesion types beside the paper's", "thresholds": "{thresholds}"},
        ),
    log:
        "logs/figures/{thresholds}/charts.log",
    benchmark:
        "results/benchmarks/figures/{thresholds}/charts.tsv"
    localrule: True
    conda:
        "../../envs/figures.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("reporting.figures.draw_figures.run_charts"),
        dpi=PLAN.options["figures"]["dpi"],
    message:
        "Charts of the dataset, thresholds {wildcards.thresholds}"
    script:
        "../../scripts/job.py"


rule figures:
    input:
        expand("results/figures/{thresholds}/panels", thresholds=PLAN.build),
        expand("results/figures/{thresholds}/{chart}.png", thresholds=PLAN.build, chart=["distribution", "shares"]),
