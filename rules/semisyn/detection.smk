# Detection: scores against experts' boxes, of the detectors trained here or of semisyn.detection.predictions.


rule semisyn_detection_scores:
    input:
        predictions=lambda wildcards: wanted(
            PLAN.semisyn.detection_files["predictions"],
            "semisyn.references has no reference with the role test or val, so there is nothing to score: add one "
            "(docs/systems/semisyn.md)",
        ),
        references=PLAN.semisyn.detection_files["references"],
        images=PLAN.semisyn.detection_files["images"],
        patients=["results/cohort/images.parquet", *PLAN.semisyn.detection_files["patients"]],
    output:
        scores=report(
            "results/semisyn/detection/scores.tsv",
            caption="../../report/semisyn_detection_scores.rst",
            category="9 SemiSynCXR",
            labels={"result": "detectors (table)"},
        ),
        differences=report(
            "results/semisyn/detection/differences.tsv",
            caption="../../report/semisyn_detection_differences.rst",
            category="9 SemiSynCXR",
            labels={"result": "differences between detectors (table)"},
        ),
        table1="results/semisyn/detection/table1.tsv",
        table2="results/semisyn/detection/table2.tsv",
        table4="results/semisyn/detection/table4.tsv",
    log:
        "logs/semisyn/detection/scores.log",
    benchmark:
        "results/benchmarks/semisyn/detection/scores.tsv"
    conda:
        "../../envs/semisyn_detection.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(120),
    params:
        **job(
            "semisyn.detection.score_detections.run_scores",
            *sorted(
                {f"annotations.{reference['format']}" for reference in PLAN.semisyn.detection_options["references"]}
            ),
        ),
        options=PLAN.options["semisyn_detection"] | PLAN.semisyn.detection_options,
    message:
        "Scores of detectors against experts' boxes"
    script:
        "../../scripts/job.py"


rule semisyn_detection_charts:
    input:
        scores="results/semisyn/detection/scores.tsv",
    output:
        curves=report(
            "results/semisyn/detection/curves.png",
            caption="../../report/semisyn_detection_curves.rst",
            category="9 SemiSynCXR",
            labels={"result": "detectors"},
        ),
    log:
        "logs/semisyn/detection/charts.log",
    benchmark:
        "results/benchmarks/semisyn/detection/charts.tsv"
    localrule: True
    conda:
        "../../envs/semisyn_detection.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("semisyn.detection.score_detections.run_charts"),
        options=PLAN.options["semisyn_detection_charts"],
    message:
        "Figure of the detectors' scores"
    script:
        "../../scripts/job.py"


rule semisyn_detection:
    input:
        rules.semisyn_detection_scores.output,
        rules.semisyn_detection_charts.output,
