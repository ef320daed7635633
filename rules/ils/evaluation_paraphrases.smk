# Evaluation in other wordings: the change by each persona's wordings (inference.paraphrases), pair by pair.


# The same pairs asked in a persona's wordings (inference.paraphrases), beside the paper's paraphrased variant.
use rule evaluation_run as evaluation_persona with:
    input:
        lines=lambda wildcards: f"results/dataset/{PLAN.ils.evaluated[wildcards.run]['test']}/{PLAN.ils.split}.jsonl",
        index=lambda wildcards: PLAN.ils.data[PLAN.ils.evaluated[wildcards.run]["test"]]["index"],
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
        "Scores of {wildcards.run}, asked as {wildcards.persona}"


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
        options={name: PLAN.options["evaluation"][name] for name in ("replicates", "interval", "seed")},
        runs=list(PLAN.ils.runs),
        personas=PLAN.ils.personas,
    message:
        "Change of the scores by other wordings"
    script:
        "../../scripts/job.py"
