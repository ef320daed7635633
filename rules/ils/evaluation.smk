# Evaluation: scores of ROSALIA and other models, masks and answers, with intervals and the paper's values.


# Predictions of other models (evaluation.predictions), read by the adapter of that name.
rule evaluation_predictions:
    input:
        lines=lambda wildcards: f"results/dataset/{PLAN.ils.evaluated[wildcards.model]['test']}/{PLAN.ils.split}.jsonl",
        source=lambda wildcards: PLAN.ils.predictions[wildcards.model].path or [],
    output:
        predictions="results/evaluation/{model}/predictions.jsonl",
        prediction_masks="results/evaluation/{model}/predictions.h5",
    log:
        "logs/evaluation/{model}/predictions.log",
    benchmark:
        "results/benchmarks/evaluation/{model}/predictions.tsv"
    wildcard_constraints:
        model="|".join(map(re.escape, PLAN.ils.predictions)) or "$^",
    group:
        "evaluation"
    conda:
        "../../envs/evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        **job("ils.evaluation.evaluate.run_predictions"),
        options=lambda wildcards: PLAN.ils.predictions[wildcards.model].model_dump(
            include={"adapter", "threshold", "grid"}
        )
        | {"size": PLAN.options["evaluation"]["size"]},
    message:
        "Conversion of the predictions of {wildcards.model}"
    script:
        "../../scripts/job.py"


rule evaluation_run:
    input:
        lines=lambda wildcards: f"results/dataset/{PLAN.ils.evaluated[wildcards.run]['test']}/{PLAN.ils.split}.jsonl",
        index=lambda wildcards: PLAN.ils.data[PLAN.ils.evaluated[wildcards.run]["test"]]["index"],
        masks=lambda wildcards: PLAN.ils.data[PLAN.ils.evaluated[wildcards.run]["test"]]["masks"],
        predictions=lambda wildcards: PLAN.ils.evaluated[wildcards.run]["predictions"],
        prediction_masks=lambda wildcards: PLAN.ils.evaluated[wildcards.run]["masks"],
        reviewed=PLAN.settings.evaluation.reviewed or [],
    output:
        pairs="results/evaluation/{run}/pairs.parquet",
        scores_table=report(
            "results/evaluation/{run}/scores.tsv",
            caption="../../report/evaluation_scores.rst",
            category="6 Evaluation",
            subcategory="{run}",
            labels={"table": "masks (Tables 4, 5)"},
        ),
        text_table=report(
            "results/evaluation/{run}/text.tsv",
            caption="../../report/evaluation_text.rst",
            category="6 Evaluation",
            subcategory="{run}",
            labels={"table": "answers (Tables 6, 14)"},
        ),
        # pairs that are not scored as they stand, with reasons, and lines that belong to no pair
        excluded="results/evaluation/{run}/excluded.parquet",
        counts_table=report(
            "results/evaluation/{run}/counts.tsv",
            caption="../../report/evaluation_counts.rst",
            category="6 Evaluation",
            subcategory="{run}",
            labels={"table": "pairs and lines accounted for"},
        ),
    log:
        "logs/evaluation/{run}/scores.log",
    benchmark:
        "results/benchmarks/evaluation/{run}/scores.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.ils.evaluated)),
    group:
        "evaluation"
    conda:
        "../../envs/evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        **job("ils.evaluation.evaluate.run_scores"),
        options=PLAN.options["evaluation"],
        model=lambda wildcards: PLAN.ils.evaluated[wildcards.run]["beside"],
    message:
        "Scores of {wildcards.run}"
    script:
        "../../scripts/job.py"


rule evaluation_comparison:
    input:
        scores=expand("results/evaluation/{run}/scores.tsv", run=PLAN.ils.evaluated),
        texts=expand("results/evaluation/{run}/text.tsv", run=PLAN.ils.evaluated),
        reworded_scores=expand(
            "results/evaluation/{run}/{persona}/scores.tsv", run=PLAN.ils.runs, persona=PLAN.ils.personas
        ),
        reworded_texts=expand(
            "results/evaluation/{run}/{persona}/text.tsv", run=PLAN.ils.runs, persona=PLAN.ils.personas
        ),
    output:
        comparison_table=report(
            "results/evaluation/comparison.tsv",
            caption="../../report/evaluation_comparison.rst",
            category="6 Evaluation",
            labels={"table": "all runs, and the paper's"},
        ),
        masks_figure=report(
            "results/evaluation/masks.png",
            caption="../../report/evaluation_masks.rst",
            category="6 Evaluation",
            labels={"figure": "masks per lesion type"},
        ),
        text_figure=report(
            "results/evaluation/text.png",
            caption="../../report/evaluation_answers.rst",
            category="6 Evaluation",
            labels={"figure": "answers per type of instruction"},
        ),
    log:
        "logs/evaluation/comparison.log",
    benchmark:
        "results/benchmarks/evaluation/comparison.tsv"
    localrule: True
    conda:
        "../../envs/evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("ils.evaluation.evaluate.run_comparison"),
        runs=[one.get("title", run) for run, one in PLAN.ils.evaluated.items()],
        reworded=[[run, persona] for run in PLAN.ils.runs for persona in PLAN.ils.personas],
        dpi=PLAN.options["figures"]["dpi"],
    message:
        "Comparison of all models"
    script:
        "../../scripts/job.py"


rule evaluation:
    input:
        rules.evaluation_comparison.output,
        "results/evaluation/paraphrases.tsv" if PLAN.ils.personas else [],
