# Selection: choose one editing configuration for each finding by the scores of all configurations.


rule semisyn_selection_choice:
    input:
        replicates=expand(
            "results/semisyn/realism/{config}/replicates.parquet", config=PLAN.semisyn.editing.compared_configs
        ),
    output:
        choice="results/semisyn/selection/choice.yaml",
        table=report(
            "results/semisyn/selection/scores.tsv",
            caption="../../report/semisyn_selection.rst",
            category="9 SemiSynCXR",
            subcategory="selection",
            labels={"result": "scores of the configurations (table)"},
        ),
        grid="results/semisyn/selection/grid.tsv",
        pipelines=report(
            "results/semisyn/selection/pipelines.png",
            caption="../../report/semisyn_pipelines.rst",
            category="9 SemiSynCXR",
            subcategory="selection",
            labels={"result": "pipelines (Figure 4)"},
        ),
        extent=report(
            "results/semisyn/selection/extent.png",
            caption="../../report/semisyn_extent.rst",
            category="9 SemiSynCXR",
            subcategory="selection",
            labels={"result": "conditioning extent (Figure 5)"},
        ),
    log:
        "logs/semisyn/selection.log",
    benchmark:
        "results/benchmarks/semisyn/selection.tsv"
    conda:
        "../../envs/semisyn_selection.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("semisyn.selection.select_configs.run"),
        options=PLAN.options["semisyn_selection"],
    message:
        "Choice of a configuration for each finding"
    script:
        "../../scripts/job.py"


rule semisyn_selection:
    input:
        rules.semisyn_selection_choice.output,
