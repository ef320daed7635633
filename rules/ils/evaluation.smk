# Evaluation: scores of the masks and answers of ROSALIA and other models, with intervals and the paper's values.


# Predictions of other models (evaluation.predictions), read by the adapter that the setting names.
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
        **job("ils.evaluation.adapters.run_predictions"),
        options=lambda wildcards: PLAN.ils.predictions[wildcards.model].as_dict(without=["path", "test"])
        | {"size": PLAN.options["evaluation"]["size"]},
    message:
        "Conversion of the predictions of {wildcards.model}"
    script:
        "../../scripts/job.py"


rule evaluation_run:
    input:
        lines=lambda wildcards: f"results/dataset/{PLAN.ils.evaluated[wildcards.run]['test']}/{PLAN.ils.split}.jsonl",
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
        # pairs that are not scored or scored as failures, with reasons, and predictions without a pair
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
        runs=[evaluated.get("title", run) for run, evaluated in PLAN.ils.evaluated.items()],
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


# Scores of the same pairs in the wordings of a persona (inference.paraphrases), beside the paper's paraphrased variant.
use rule evaluation_run as evaluation_persona with:
    input:
        lines=lambda wildcards: f"results/dataset/{PLAN.ils.evaluated[wildcards.run]['test']}/{PLAN.ils.split}.jsonl",
        masks=lambda wildcards: PLAN.ils.data[PLAN.ils.evaluated[wildcards.run]["test"]]["masks"],
        predictions=f"results/inference/{{run}}/{PLAN.ils.split}.{{persona}}.jsonl",
        prediction_masks=f"results/inference/{{run}}/{PLAN.ils.split}.{{persona}}.h5",
        reviewed=PLAN.settings.evaluation.reviewed or [],
    output:
        pairs="results/evaluation/{run}/{persona}/pairs.parquet",
        scores_table="results/evaluation/{run}/{persona}/scores.tsv",
        text_table="results/evaluation/{run}/{persona}/text.tsv",
        excluded="results/evaluation/{run}/{persona}/excluded.parquet",
        counts_table="results/evaluation/{run}/{persona}/counts.tsv",
    log:
        "logs/evaluation/{run}/{persona}.log",
    benchmark:
        "results/benchmarks/evaluation/{run}/{persona}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.ils.runs)),
        persona="|".join(PLAN.settings.paraphrase.personas),
    params:
        options=PLAN.options["evaluation"],
        model="ROSALIA, paraphrased",
        reworded=True,
    message:
        "Scores of {wildcards.run}, asked in the words of {wildcards.persona}"


rule evaluation_paraphrases:
    input:
        plain=expand("results/evaluation/{run}/pairs.parquet", run=PLAN.ils.runs),
        reworded=expand(
            "results/evaluation/{run}/{persona}/pairs.parquet", run=PLAN.ils.runs, persona=PLAN.ils.personas
        ),
    output:
        paraphrases_table=report(
            "results/evaluation/paraphrases.tsv",
            caption="../../report/evaluation_paraphrases.rst",
            category="6 Evaluation",
            labels={"table": "change by other wordings"},
        ),
    log:
        "logs/evaluation/paraphrases.log",
    benchmark:
        "results/benchmarks/evaluation/paraphrases.tsv"
    localrule: True
    conda:
        "../../envs/evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(20),
    params:
        **job("ils.evaluation.paraphrases.run"),
        replicates=PLAN.options["evaluation"]["replicates"],
        seed=PLAN.options["evaluation"]["seed"],
        runs=list(PLAN.ils.runs),
        personas=PLAN.ils.personas,
    message:
        "Change of the scores if instructions are paraphrased"
    script:
        "../../scripts/job.py"
