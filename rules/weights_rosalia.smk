# Weights that a training of ROSALIA starts from, or that are asked as they are: LISA or ROSALIA, CLIP and SAM.


use rule weights_hybridgnet as weights_lisa with:
    input:
        sources=PLACED["lisa"],
    output:
        weights=directory("results/weights/lisa"),
        manifest="results/weights/lisa.json",
    log:
        "logs/weights/lisa.log",
    benchmark:
        "results/benchmarks/weights/lisa.tsv"
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        options=WEIGHTS["lisa"],
        code=code_digest("weights.py", "ils.weights.folder", "ils.weights.lisa"),


use rule weights_hybridgnet as weights_rosalia with:
    input:
        sources=PLACED["rosalia"],
    output:
        weights=directory("results/weights/rosalia"),
        manifest="results/weights/rosalia.json",
    log:
        "logs/weights/rosalia.log",
    benchmark:
        "results/benchmarks/weights/rosalia.tsv"
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        options=WEIGHTS["rosalia"],
        code=code_digest("weights.py", "ils.weights.folder", "ils.weights.lisa"),


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
