# RadVLM's scores: answers of runs and of other models, beside blind answers, exchanged pictures and the paper.


rule radvlm_evaluation_asked:
    input:
        lines=PLAN.evaluation.lines,
    output:
        asked="results/radvlm/evaluation/asked.jsonl",
    log:
        "logs/radvlm/evaluation/asked.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/asked.tsv"
    priority: 100  # without a line to score it stops a run before it tunes
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(30),
    params:
        **job("radvlm.evaluation.other_models.run_asked"),
        options={"beyond": PLAN.evaluation.beyond},
    message:
        "RadVLM: what other models are to be asked"
    script:
        "../../scripts/job.py"


rule radvlm_evaluation_read:
    input:
        lines=PLAN.evaluation.lines,
        path=lambda wildcards: PLAN.evaluation.models[wildcards.run]["path"],
        images=PLAN.radvlm.of_sources("images.parquet"),
    output:
        answers="results/radvlm/evaluation/{run}/answers.jsonl",
    log:
        "logs/radvlm/evaluation/{run}.read.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/{run}.read.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.evaluation.models)) or "$^",
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("radvlm.evaluation.other_models.run_read"),
        options=lambda wildcards: PLAN.evaluation.of_model(wildcards.run),
    message:
        "RadVLM: outputs of the model {wildcards.run}"
    script:
        "../../scripts/job.py"


rule radvlm_evaluation_scores:
    input:
        lines=PLAN.evaluation.lines,
        train=PLAN.evaluation.train,
        answers=lambda wildcards: PLAN.evaluation.answers(wildcards.run),
        exchanged_lines=lambda wildcards: PLAN.evaluation.lines_exchanged(wildcards.run),
        exchanged_answers=lambda wildcards: PLAN.evaluation.to_exchanged(wildcards.run),
        judged="results/radvlm/evaluation/{run}/judged.jsonl",
        texts=PLAN.evaluation.texts,
        draw=PLAN.evaluation.draw,
        exchanged_draw=lambda wildcards: PLAN.evaluation.draw_exchanged(wildcards.run),
        annotations=lambda wildcards: PLAN.evaluation.notes(wildcards.run),
    output:
        samples="results/radvlm/evaluation/{run}/samples.parquet",
        scored="results/radvlm/evaluation/{run}/scores.tsv",
        counts="results/radvlm/evaluation/{run}/counts.tsv",
    log:
        "logs/radvlm/evaluation/{run}.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/{run}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, [*PLAN.evaluation.runs, *PLAN.evaluation.models])) or "$^",
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(60),
    params:
        **job("radvlm.evaluation.score_run.run_scores"),
        options=lambda wildcards: PLAN.evaluation.of_scores(wildcards.run),
    message:
        "RadVLM: scores of {wildcards.run}"
    script:
        "../../scripts/job.py"


rule radvlm_evaluation_comparison:
    input:
        scored=PLAN.evaluation.files(PLAN.evaluation.runs, "scores.tsv"),
        models_scored=PLAN.evaluation.files(PLAN.evaluation.models, "scores.tsv"),
        judge_check="results/radvlm/evaluation/judge_check.tsv",
        draw=PLAN.evaluation.draw,
        masks_scored=expand("results/evaluation/{row}/scores.tsv", row=PLAN.segmenting.masked),
    output:
        comparison="results/radvlm/evaluation/comparison.tsv",
    log:
        "logs/radvlm/evaluation/comparison.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/comparison.tsv"
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(1000),
        runtime=minutes(10),
    params:
        **job("radvlm.evaluation.compare.run_comparison"),
        options=PLAN.evaluation.comparison | {"masked": [list(one) for one in PLAN.segmenting.masked.values()]},
    message:
        "RadVLM: scores of all runs and models, beside the paper's"
    script:
        "../../scripts/job.py"


# What became of everything: rows of the sources, facts, conversations, lines, samples.
rule radvlm_evaluation_conservation:
    input:
        sources=PLAN.radvlm.of_sources("conservation.tsv"),
        conversations=sorted({path for mix in PLAN.evaluation.mixes for path in PLAN.radvlm.outcomes(mix)}),
        instructions=expand("results/radvlm/instructions/{mix}/conservation.tsv", mix=PLAN.evaluation.mixes),
        tunings=expand("results/vlm/{run}/conservation.tsv", run=PLAN.evaluation.tuned),
        counts=PLAN.evaluation.files([*PLAN.evaluation.runs, *PLAN.evaluation.models], "counts.tsv"),
    output:
        conservation=report(
            "results/radvlm/evaluation/conservation.tsv",
            caption="../../report/radvlm_conservation.rst",
            category="11 RadVLM",
            labels={"result": "what became of everything (table)"},
        ),
    log:
        "logs/radvlm/evaluation/conservation.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/conservation.tsv"
    localrule: True
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(1000),
        runtime=minutes(5),
    params:
        **job("radvlm.evaluation.conservation.run"),
    message:
        "RadVLM: what became of rows, facts, conversations, lines and samples"
    script:
        "../../scripts/job.py"


rule radvlm_evaluation:
    input:
        "results/radvlm/evaluation/comparison.tsv",
        "results/radvlm/evaluation/conservation.tsv",
        "results/radvlm/evaluation/asked.jsonl",
        "results/radvlm/evaluation/looks.png",
        "results/radvlm/evaluation/gallery",
        "results/radvlm.html",
        PLAN.segmenting.beside,
