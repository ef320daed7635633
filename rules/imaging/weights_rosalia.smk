# Weights for training ROSALIA or for using the published LISA or ROSALIA: both models, CLIP and SAM.


use rule weights_hybridgnet as weights_lisa with:
    input:
        sources=PLAN.weights.placed["lisa"],
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
        **job("imaging.weights.placed.run_folder", "imaging.weights.state_dict"),
        options=PLAN.weights.options["lisa"],
    message:
        "Weights of LISA-7B: convert"


use rule weights_hybridgnet as weights_rosalia with:
    input:
        sources=PLAN.weights.placed["rosalia"],
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
        **job("imaging.weights.placed.run_folder", "imaging.weights.state_dict"),
        options=PLAN.weights.options["rosalia"],
    message:
        "Weights of ROSALIA-7B: convert"


use rule weights_radedit as weights_clip with:
    output:
        weights=directory("results/weights/clip"),
        manifest="results/weights/clip.json",
    log:
        "logs/weights/clip.log",
    benchmark:
        "results/benchmarks/weights/clip.tsv"
    localrule: True  # not inherited
    params:
        options=PLAN.weights.options["clip"],
    message:
        "Weights of CLIP: fetch"


use rule weights_hybridgnet as weights_sam with:
    input:
        sources=PLAN.weights.placed["sam"],
    output:
        weights=["results/weights/sam.safetensors"],
        manifest="results/weights/sam.json",
    log:
        "logs/weights/sam.log",
    benchmark:
        "results/benchmarks/weights/sam.tsv"
    params:
        **job("imaging.weights.placed.run", "imaging.weights.state_dict"),
        options=PLAN.weights.options["sam"],
    message:
        "Weights of SAM: convert"
