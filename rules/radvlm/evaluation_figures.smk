# Figures of RadVLM's scores, and the gallery of samples for the report page.


rule radvlm_evaluation_charts:
    input:
        comparison="results/radvlm/evaluation/comparison.tsv",
    output:
        labels=report(
            "results/radvlm/evaluation/labels.png",
            caption="../../report/radvlm_labels.rst",
            category="11 RadVLM",
            labels={"result": "F1 of each label (chart)"},
        ),
        ablation=report(
            "results/radvlm/evaluation/ablation.png",
            caption="../../report/radvlm_ablation.rst",
            category="11 RadVLM",
            labels={"result": "runs beside the paper's Table 6 (chart)"},
        ),
        looks=report(
            "results/radvlm/evaluation/looks.png",
            caption="../../report/radvlm_looks.rst",
            category="11 RadVLM",
            labels={"result": "scores with exchanged pictures (chart)"},
        ),
    log:
        "logs/radvlm/evaluation/charts.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/charts.tsv"
    localrule: True
    conda:
        "../../envs/figures.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(1000),
        runtime=minutes(5),
    params:
        **job("radvlm.evaluation.chart.run"),
        dpi=PLAN.options["figures"]["dpi"],
    message:
        "RadVLM: charts of the scores"
    script:
        "../../scripts/job.py"


rule radvlm_evaluation_gallery:
    input:
        lines=PLAN.evaluation.lines,
        answers=[PLAN.evaluation.answers(run) for run in PLAN.evaluation.runs[:1]],
        frames=PLAN.radvlm.all_frames(),
    output:
        folder=directory("results/radvlm/evaluation/gallery"),
    log:
        "logs/radvlm/evaluation/gallery.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/gallery.tsv"
    localrule: True
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(15),
    params:
        **job("radvlm.evaluation.gallery.run"),
        options=PLAN.evaluation.gallery | {"folders": PLAN.radvlm.folders},
    message:
        "RadVLM: gallery of samples and conversations"
    script:
        "../../scripts/job.py"


# The target radvlm: mixes, answers of the models tuned on them, scores, and the report page.
rule radvlm:
    input:
        rules.radvlm_instructions.input,
        [
            f"results/vlm/{run}/answers/{name}.jsonl"
            for run, plan in PLAN.vlm.runs.items()
            if plan["system"] == "radvlm"
            for name in PLAN.vlm.sets_by_run[run]
        ],
        rules.radvlm_evaluation.input,
