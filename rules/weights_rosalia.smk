# Weights that a training of ROSALIA starts from: LISA, CLIP and SAM.


use rule weights_hybridgnet as weights_lisa with:
    input:
        sources=PLACED["lisa"],
    output:
        weights=[
            "results/weights/lisa/config.json",
            "results/weights/lisa/added_tokens.json",
            "results/weights/lisa/special_tokens_map.json",
            "results/weights/lisa/tokenizer.model",
            "results/weights/lisa/tokenizer_config.json",
            "results/weights/lisa/model-00001-of-00002.safetensors",
            "results/weights/lisa/model-00002-of-00002.safetensors",
        ],
        manifest="results/weights/lisa.json",
    log:
        "logs/weights/lisa.log",
    benchmark:
        "results/benchmarks/weights/lisa.tsv"
    resources:
        mem_mb=megabytes(40000),  # a shard of ten gigabytes, as it comes and as it goes
        runtime=minutes(60),
    params:
        options=WEIGHTS["lisa"],
        code=code_digest("weights.py", "ils.weights.placed", "ils.weights.lisa"),


use rule weights_radedit as weights_clip with:
    output:
        weights=directory("results/weights/clip"),
        manifest="results/weights/clip.json",
    log:
        "logs/weights/clip.log",
    benchmark:
        "results/benchmarks/weights/clip.tsv"
    params:
        options=WEIGHTS["clip"],
        code=code_digest("weights.py", "ils.weights.hub"),


use rule weights_hybridgnet as weights_sam with:
    input:
        sources=PLACED["sam"],
    output:
        weights=["results/weights/sam.safetensors"],
        manifest="results/weights/sam.json",
    log:
        "logs/weights/sam.log",
    benchmark:
        "results/benchmarks/weights/sam.tsv"
    params:
        options=WEIGHTS["sam"],
        code=code_digest("weights.py", "ils.weights.placed", "ils.weights.sam"),
