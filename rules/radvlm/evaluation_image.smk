# ROSALIA as a tool for one image (vlm_ask): it draws a mask for each [SEG] in the answers of a RadVLM model.


rule radvlm_evaluation_image_asked:
    input:
        conversation="results/vlm/{run}/asked/{image}",
    output:
        asked="results/radvlm/evaluation/{run}/segmenter/asked/{image}.jsonl",
    log:
        "logs/radvlm/evaluation/{run}/asked/{image}.instructions.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/{run}/asked/{image}.instructions.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.segmentation.image_runs)) or "$^",
        image="[^/]+",
    localrule: True
    conda:
        "../../envs/radvlm_evaluation.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(1000),
        runtime=minutes(10),
    params:
        **job("radvlm.evaluation.segmenter.run_asked_image"),
    message:
        "RadVLM: requests to ROSALIA about {wildcards.image}"
    script:
        "../../scripts/job.py"


use rule inference_predict as radvlm_evaluation_image_masks with:
    input:
        model=f"results/training/{PLAN.segmentation.tool}/model" if PLAN.segmentation.tool else [],
        image=PLAN.vlm_request["image"] or [],
        instructions_file="results/radvlm/evaluation/{run}/segmenter/asked/{image}.jsonl",
    output:
        output=directory("results/radvlm/evaluation/{run}/segmenter/image/{image}"),
    log:
        "logs/radvlm/evaluation/{run}/asked/{image}.masks.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/{run}/asked/{image}.masks.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.segmentation.image_runs)) or "$^",
        image="[^/]+",
    resources:
        gpu=PLAN.ils.gpus.get(PLAN.segmentation.tool, 0),
        mem_mb=megabytes(
            16000
            if PLAN.ils.gpus.get(PLAN.segmentation.tool)
            else 4000 + 2 * PLAN.ils.model_mb.get(PLAN.segmentation.tool, 0)
        ),
        runtime=minutes(60),
    params:
        instructions=[],
        asking=PLAN.options["inference"] | PLAN.ils.runs.get(PLAN.segmentation.tool, {}).get("asking", {}),
    message:
        "RadVLM: masks of ROSALIA for the answers of {wildcards.run} about {wildcards.image}"


rule radvlm_evaluation_image:
    input:
        conversation="results/vlm/{run}/asked/{image}",
        asked="results/radvlm/evaluation/{run}/segmenter/asked/{image}.jsonl",
        masks="results/radvlm/evaluation/{run}/segmenter/image/{image}",
        image=PLAN.vlm_request["image"] or [],
    output:
        output=directory("results/radvlm/evaluation/{run}/asked/{image}"),
    log:
        "logs/radvlm/evaluation/{run}/asked/{image}.log",
    benchmark:
        "results/benchmarks/radvlm/evaluation/{run}/asked/{image}.tsv"
    wildcard_constraints:
        run="|".join(map(re.escape, PLAN.segmentation.image_runs)) or "$^",
        image=r"[^/]+(?<!\.masks)",
    localrule: True
    conda:
        "../../envs/vlm_answers-image.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(10),
    params:
        **job("radvlm.evaluation.segmented_image.run"),
        cohort=PLAN.options["cohort"],
        frames=PLAN.options["frames"],
        quality=JPEG_QUALITY,
    message:
        "RadVLM: answers of {wildcards.run} about {wildcards.image}, with masks"
    script:
        "../../scripts/job.py"
