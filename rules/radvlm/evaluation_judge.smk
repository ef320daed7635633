# The judge of RadVLM's conversations, and a check of the judge. A changed prompt reruns only the judgements.


rule radvlm_evaluation_judged:
    input:
        lines=PLAN.evaluation.lines,
        train=PLAN.evaluation.train_lines,
        answers=lambda wildcards: PLAN.evaluation.answers(wildcards.run),
        exchanged_lines=lambda wildcards: PLAN.evaluation.exchanged_files(wildcards.run)["exchanged_lines"],
        exchanged_answers=lambda wildcards: PLAN.evaluation.exchanged_files(wildcards.run)["exchanged_answers"],
    output:
        judged="results/radvlm/evaluation/{run}/judged.jsonl",
    log:
        "logs/radvlm/evaluation/{run}.judged.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/{run}.judged.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.evaluation.scored)) or "$^",
    conda:
        f"../../envs/radvlm_evaluation-{PLAN.settings.radvlm.evaluation.judge}.yaml"
    threads: 8 if PLAN.evaluation.judge_gpus else 1
    resources:
        gpu=PLAN.evaluation.judge_gpus,
        nodes=1,  # otherwise SLURM may take GPUs of two nodes
        mem_mb=megabytes(64000 if PLAN.evaluation.judge_gpus else 4000),
        runtime=minutes(240),
    params:
        **job(
            "radvlm.evaluation.conversations.run_judge",
            f"radvlm.evaluation.judge_{PLAN.settings.radvlm.evaluation.judge}",
        ),
        options={"judge": PLAN.settings.radvlm.evaluation.judge, "model_options": PLAN.evaluation.judge_model},
    message:
        "RadVLM: judge the conversations of {wildcards.run}"
    script:
        "../../scripts/job.py"


use rule radvlm_evaluation_judged as radvlm_evaluation_judge_check with:
    input:
        lines=PLAN.evaluation.all_lines,
    output:
        checked="results/radvlm/evaluation/judge_check.tsv",
    log:
        "logs/radvlm/evaluation/judge_check.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/judge_check.tsv"
    params:
        **job(
            "radvlm.evaluation.conversations.run_check",
            f"radvlm.evaluation.judge_{PLAN.settings.radvlm.evaluation.judge}",
        ),
        options={"judge": PLAN.settings.radvlm.evaluation.judge, "model_options": PLAN.evaluation.judge_model},
    message:
        "RadVLM: check the judge"


# Annotations of RadVLM's reports by the models in radvlm.evaluation.annotators, from which scores are computed.


for annotator in PLAN.evaluation.annotators:

    rule:
        name:
            f"radvlm_evaluation_annotated_{annotator}"
        input:
            **PLAN.evaluation.annotators[annotator].files,
            placed=PLAN.evaluation.annotators[annotator].placed,
            lines=PLAN.evaluation.lines,
            answers=lambda wildcards: PLAN.evaluation.answers(wildcards.run),
            texts=expand("results/radvlm/sources/{source}/texts.jsonl", source=PLAN.evaluation.text_sources),
        output:
            notes_out=f"results/radvlm/evaluation/{{run}}/annotations/{annotator}.jsonl",
        log:
            f"logs/radvlm/evaluation/{{run}}.{annotator}.log",
        benchmark:
            f"results/benchmarks/radvlm/evaluation/{{run}}.{annotator}.tsv"
        wildcard_constraints:
            run="|".join(map(re.escape, PLAN.evaluation.scored)) or "$^",
        conda:
            f"../../envs/radvlm_evaluation-{PLAN.evaluation.annotators[annotator].environment}.yaml"
        threads: 8 if PLAN.evaluation.annotators[annotator].gpus else 1
        resources:
            gpu=PLAN.evaluation.annotators[annotator].gpus,
            nodes=1,  # otherwise SLURM may take GPUs of two nodes
            mem_mb=megabytes(64000 if PLAN.evaluation.annotators[annotator].gpus else 4000),
            runtime=minutes(240),
        params:
            **job("radvlm.evaluation.annotate.run", f"radvlm.evaluation.annotate_{annotator}"),
            options=PLAN.evaluation.annotators[annotator].options,
        message:
            "RadVLM: annotate the reports of {wildcards.run}"
        script:
            "../../scripts/job.py"
