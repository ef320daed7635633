# Annotations of RadVLM's reports by the models that the settings name; the scores read them from files.


for annotator in PLAN.evaluation.annotators:

    rule:
        name:
            f"radvlm_evaluation_annotated_{annotator}"
        input:
            **PLAN.evaluation.annotators[annotator].files,
            placed=PLAN.evaluation.annotators[annotator].placed,
            lines=PLAN.evaluation.lines,
            answers=lambda wildcards: PLAN.evaluation.answers(wildcards.run),
            texts=PLAN.evaluation.texts,
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
            nodes=1,  # else SLURM may take the GPUs of two
            mem_mb=megabytes(64000 if PLAN.evaluation.annotators[annotator].gpus else 4000),
            runtime=minutes(240),
        params:
            **job("radvlm.evaluation.annotate.run", f"radvlm.evaluation.annotate_{annotator}"),
            options=PLAN.evaluation.annotators[annotator].options,
        message:
            "RadVLM: reports of {wildcards.run} are annotated"
        script:
            "../../scripts/job.py"
