# ROSALIA as a tool (radvlm.evaluation.segmenter): it adds masks and texts to RadVLM's answers, which do not change.


# All ILS pairs of the evaluated split as questions, so that the tables of ILS compare all models on the same pairs.
rule radvlm_evaluation_ils:
    input:
        pairs=PLAN.segmentation.pairs or [],
    output:
        lines="results/radvlm/evaluation/ils.jsonl",
    log:
        "logs/radvlm/evaluation/ils.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/ils.tsv"
    localrule: True
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(1000),
        runtime=minutes(10),
    params:
        **job("radvlm.evaluation.segmenter.run_ils"),
    message:
        "RadVLM: pairs of the ILS dataset as questions"
    script:
        "../../scripts/job.py"


rule radvlm_evaluation_segmenter_asked:
    input:
        lines=lambda wildcards: PLAN.vlm.sets[wildcards.set],
        answers="results/vlm/{run}/answers/{set}.jsonl",
    output:
        asked="results/radvlm/evaluation/{run}/segmenter/{set}/{source}.asked.jsonl",
    log:
        "logs/radvlm/evaluation/{run}/{set}.{source}.asked.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/{run}/{set}.{source}.asked.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.segmentation.runs)) or "$^",
        set="radvlm_test|radvlm_ils",
        source="|".join(map(re.escape, PLAN.radvlm.sources)),
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(30),
    params:
        **job("radvlm.evaluation.segmenter.run_asked"),
    message:
        "RadVLM: requests to ROSALIA for the answers of {wildcards.run} to {wildcards.set}, {wildcards.source}"
    script:
        "../../scripts/job.py"


use rule inference_run as radvlm_evaluation_segmenter_run with:
    input:
        model=f"results/training/{PLAN.segmentation.tool}/model" if PLAN.segmentation.tool else [],
        lines="results/radvlm/evaluation/{run}/segmenter/{set}/{source}.asked.jsonl",
        frames=lambda wildcards: PLAN.radvlm.frames_of(wildcards.source),
    output:
        predictions="results/radvlm/evaluation/{run}/segmenter/{set}/{source}.jsonl",
        prediction_masks="results/radvlm/evaluation/{run}/segmenter/{set}/{source}.h5",
    log:
        "logs/radvlm/evaluation/{run}/{set}.{source}.segmenter.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/{run}/{set}.{source}.segmenter.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.segmentation.runs)) or "$^",
        set="radvlm_test|radvlm_ils",
        source="|".join(map(re.escape, PLAN.radvlm.sources)),
    resources:
        gpu=PLAN.ils.gpus.get(PLAN.segmentation.tool, 0),
        mem_mb=megabytes(
            16000
            if PLAN.ils.gpus.get(PLAN.segmentation.tool)
            else 4000 + 2 * PLAN.ils.model_mb.get(PLAN.segmentation.tool, 0)
        ),
        runtime=minutes(720 if PLAN.ils.gpus.get(PLAN.segmentation.tool) else 120),
    params:
        options=PLAN.options["inference"] | PLAN.ils.runs.get(PLAN.segmentation.tool, {}).get("asking", {}),
        may_be_empty=True,
    message:
        "RadVLM: masks of ROSALIA for the answers of {wildcards.run} to {wildcards.set}, {wildcards.source}"


rule radvlm_evaluation_segmenter_beside:
    input:
        asked=lambda wildcards: expand(
            "results/radvlm/evaluation/{{run}}/segmenter/radvlm_test/{source}.asked.jsonl", source=PLAN.radvlm.sources
        ),
        predictions=lambda wildcards: expand(
            "results/radvlm/evaluation/{{run}}/segmenter/radvlm_test/{source}.jsonl", source=PLAN.radvlm.sources
        ),
    output:
        segmented="results/radvlm/evaluation/{run}/segmented.jsonl",
    log:
        "logs/radvlm/evaluation/{run}.segmented.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/{run}.segmented.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.segmentation.runs)) or "$^",
    localrule: True
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(1000),
        runtime=minutes(10),
    params:
        **job("radvlm.evaluation.segmenter.run_beside"),
    message:
        "RadVLM: join ROSALIA's masks and texts to the answers of {wildcards.run}"
    script:
        "../../scripts/job.py"


# Masks of runs with a segmentation head, in the prediction format of the ILS evaluation.
rule radvlm_evaluation_head:
    input:
        lines="results/radvlm/evaluation/ils.jsonl",
        answers="results/vlm/{run}/answers/radvlm_ils.jsonl",
        masks="results/vlm/{run}/answers/radvlm_ils.h5",
    output:
        predictions="results/radvlm/evaluation/{run}/head/radvlm_ils.jsonl",
        prediction_masks="results/radvlm/evaluation/{run}/head/radvlm_ils.h5",
    log:
        "logs/radvlm/evaluation/{run}.head.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/{run}.head.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.segmentation.heads)) or "$^",
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(30),
    params:
        **job("radvlm.evaluation.segmenter.run_head"),
    message:
        "RadVLM: masks of the head of {wildcards.run} for the pairs of the ILS dataset"
    script:
        "../../scripts/job.py"
