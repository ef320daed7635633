# Weights for RadVLM, in addition to those in weights.smk.


use rule weights_hybridgnet as weights_chexbert with:
    input:
        sources=PLAN.weights.placed["chexbert"],
    output:
        weights=["results/weights/chexbert.safetensors"],
        manifest="results/weights/chexbert.json",
    log:
        "logs/weights/chexbert.log",
    benchmark:
        "results/benchmarks/weights/chexbert.tsv"
    params:
        **job("imaging.weights.placed.run", "imaging.weights.state_dict"),
        options=PLAN.weights.options["chexbert"],
    message:
        "Weights of CheXbert: convert"


# A model that a setting names is not copied. Its files are listed, and checked if their digest is known.
rule weights_model:
    input:
        sources=lambda wildcards: PLAN.weights.models[wildcards.model]["sources"],
    output:
        manifest="results/weights/{model}.json",
    log:
        "logs/weights/{model}.log",
    benchmark:
        "results/benchmarks/weights/{model}.tsv"
    wildcard_constraints:
        model="|".join(PLAN.weights.models) or "none",
    conda:
        "../../envs/weights.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(1000),
        runtime=minutes(60),
    params:
        **job("imaging.weights.manifest.note_model"),
        options=lambda wildcards: PLAN.weights.models[wildcards.model]["options"],
    message:
        "Model {wildcards.model}: revision and digests"
    script:
        "../../scripts/job.py"
