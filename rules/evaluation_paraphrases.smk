# Evaluation in other words: what a persona's wordings change (inference.paraphrases), pair by pair.


# The same pairs asked in a persona's wordings (inference.paraphrases), beside the paper's paraphrased variant.
use rule evaluation_run as evaluation_persona with:
    input:
        lines=lambda wildcards: f"results/dataset/{EVALUATED[wildcards.run]['test']}/{SPLIT}.jsonl",
        index=lambda wildcards: DATA[EVALUATED[wildcards.run]["test"]]["index"],
        masks=lambda wildcards: DATA[EVALUATED[wildcards.run]["test"]]["masks"],
        predictions=f"results/inference/{{run}}/{SPLIT}.{{persona}}.jsonl",
        prediction_masks=f"results/inference/{{run}}/{SPLIT}.{{persona}}.h5",
        reviewed=SETTINGS.evaluation.reviewed or [],
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
        run="|".join(map(re.escape, RUNS)),
        persona="|".join(SETTINGS.paraphrase.personas),
    params:
        options=OPTIONS["evaluation"],
        model="ROSALIA, paraphrased",
        reworded=True,
        code=code_digest("evaluation.py", "ils.evaluation.stage"),


rule evaluation_paraphrases:
    input:
        plain=expand("results/evaluation/{run}/pairs.parquet", run=RUNS),
        reworded=expand("results/evaluation/{run}/{persona}/pairs.parquet", run=RUNS, persona=PERSONAS),
    output:
        paraphrases_table=report(
            "results/evaluation/paraphrases.tsv",
            caption="../report/evaluation_paraphrases.rst",
            category="6 Evaluation",
            labels={"table": "what other wordings change"},
        ),
    log:
        "logs/evaluation/paraphrases.log",
    benchmark:
        "results/benchmarks/evaluation/paraphrases.tsv"
    localrule: True
    conda:
        "../envs/evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(20),
    params:
        options={name: OPTIONS["evaluation"][name] for name in ("replicates", "interval", "seed")},
        runs=list(RUNS),
        personas=PERSONAS,
        code=code_digest("evaluation.py", "ils.evaluation.paraphrases"),
    script:
        "../scripts/evaluation.py"
