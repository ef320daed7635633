# RadVLM's scores of all models, beside answers without an image, answers to exchanged images, and the paper.


rule radvlm_evaluation_asked:
    input:
        lines=PLAN.evaluation.lines,
    output:
        asked="results/radvlm/evaluation/asked.jsonl",
    log:
        "logs/radvlm/evaluation/asked.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/asked.tsv"
    priority: 100  # early, because without samples to score the run should end before any tuning
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(30),
    params:
        **job("radvlm.evaluation.other_models.run_asked"),
        beyond=PLAN.settings.radvlm.evaluation.beyond,
    message:
        "RadVLM: test questions for models that the user runs"
    script:
        "../../scripts/job.py"


rule radvlm_evaluation_read:
    input:
        lines=PLAN.evaluation.lines,
        path=lambda wildcards: PLAN.evaluation.section.predictions[wildcards.run].path,
        images=expand("results/radvlm/sources/{source}/images.parquet", source=PLAN.radvlm.sources),
    output:
        answers="results/radvlm/evaluation/{run}/answers.jsonl",
    log:
        "logs/radvlm/evaluation/{run}.read.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/{run}.read.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.evaluation.section.predictions)) or "$^",
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("radvlm.evaluation.other_models.run_read"),
        options=lambda wildcards: {
            "model": wildcards.run,
            "adapter": PLAN.evaluation.section.predictions[wildcards.run].adapter,
            "boxes": PLAN.evaluation.section.predictions[wildcards.run].boxes,
            "beyond": PLAN.evaluation.section.beyond,
        },
    message:
        "RadVLM: outputs of the model {wildcards.run}"
    script:
        "../../scripts/job.py"


rule radvlm_evaluation_scores:
    input:
        unpack(lambda wildcards: PLAN.evaluation.exchanged_files(wildcards.run)),
        lines=PLAN.evaluation.lines,
        train=PLAN.evaluation.train_lines,
        answers=lambda wildcards: PLAN.evaluation.answers(wildcards.run),
        judged="results/radvlm/evaluation/{run}/judged.jsonl",
        texts=expand("results/radvlm/sources/{source}/texts.jsonl", source=PLAN.evaluation.text_sources),
        draw=PLAN.evaluation.draw,
        # files of the annotators, and at the end the user's file, if any
        annotations=lambda wildcards: [
            *expand(
                "results/radvlm/evaluation/{run}/annotations/{annotator}.jsonl",
                run=wildcards.run,
                annotator=PLAN.evaluation.annotators,
            ),
            *filter(None, [PLAN.evaluation.section.annotations.get(wildcards.run)]),
        ],
    output:
        samples="results/radvlm/evaluation/{run}/samples.parquet",
        scored="results/radvlm/evaluation/{run}/scores.tsv",
        counts="results/radvlm/evaluation/{run}/counts.tsv",
    log:
        "logs/radvlm/evaluation/{run}.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/{run}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.evaluation.scored)) or "$^",
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(60),
    params:
        **job("radvlm.evaluation.score_run.run_scores"),
        options=lambda wildcards: PLAN.evaluation.score_options(wildcards.run),
    message:
        "RadVLM: scores of {wildcards.run}"
    script:
        "../../scripts/job.py"


rule radvlm_evaluation_comparison:
    input:
        scored=expand("results/radvlm/evaluation/{run}/scores.tsv", run=PLAN.evaluation.runs),
        models_scored=expand("results/radvlm/evaluation/{run}/scores.tsv", run=PLAN.evaluation.section.predictions),
        judge_check="results/radvlm/evaluation/judge_check.tsv",
        draw=PLAN.evaluation.draw,
        masks_scored=expand("results/evaluation/{row}/scores.tsv", row=PLAN.segmentation.masked),
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
        options={
            "runs": PLAN.evaluation.runs,
            "adapters": {name: model.adapter for name, model in PLAN.evaluation.section.predictions.items()},
            "masked": [list(row) for row in PLAN.segmentation.masked.values()],
        },
    message:
        "RadVLM: scores of all runs and models, with the paper's"
    script:
        "../../scripts/job.py"


# Check that no record is lost between source rows, facts, conversations, lines and samples.
rule radvlm_evaluation_conservation:
    input:
        sources=expand("results/radvlm/sources/{source}/conservation.tsv", source=PLAN.radvlm.sources),
        conversations=expand(
            "results/radvlm/conversations/{source}/outcomes.tsv",
            source=sorted(
                {source for mix in PLAN.evaluation.mixes for source in PLAN.radvlm.conversation_sources(mix)}
            ),
        ),
        instructions=expand("results/radvlm/instructions/{mix}/conservation.tsv", mix=PLAN.evaluation.mixes),
        tunings=expand(
            "results/vlm/{run}/conservation.tsv", run=[run for run in PLAN.evaluation.runs if run in PLAN.vlm.trained]
        ),
        counts=expand("results/radvlm/evaluation/{run}/counts.tsv", run=PLAN.evaluation.scored),
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
        "RadVLM: conservation of rows, facts, conversations, lines and samples"
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
        expand("results/radvlm/evaluation/{run}/segmented.jsonl", run=PLAN.segmentation.runs),
