# Weights: what the engines with a large net read. From the hub they are fetched where snakemake was started (no compute
# node need reach it), what was placed by hand is converted in a job; results/weights/<artefact>.json tells the origin.


rule weights_radedit:
    output:
        weights=directory("results/weights/radedit"),
        manifest="results/weights/radedit.json",
    log:
        "logs/weights/radedit.log",
    benchmark:
        "results/benchmarks/weights/radedit.tsv"
    localrule: True
    conda:
        "../envs/weights.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(120),
    params:
        options=WEIGHTS["radedit"],
        code=code_digest("weights.py", "ils.weights.hub"),
    script:
        "../scripts/weights.py"


use rule weights_radedit as weights_sdxl_vae with:
    output:
        weights=directory("results/weights/sdxl_vae"),
        manifest="results/weights/sdxl_vae.json",
    log:
        "logs/weights/sdxl_vae.log",
    benchmark:
        "results/benchmarks/weights/sdxl_vae.tsv"
    params:
        options=WEIGHTS["sdxl_vae"],
        code=code_digest("weights.py", "ils.weights.hub"),


use rule weights_radedit as weights_biovil_t with:
    output:
        weights=directory("results/weights/biovil_t"),
        manifest="results/weights/biovil_t.json",
    log:
        "logs/weights/biovil_t.log",
    benchmark:
        "results/benchmarks/weights/biovil_t.tsv"
    params:
        options=WEIGHTS["biovil_t"],
        code=code_digest("weights.py", "ils.weights.hub"),


rule weights_hybridgnet:
    input:
        sources=PLACED["hybridgnet"],
    output:
        weights=["results/weights/hybridgnet.safetensors"],
        manifest="results/weights/hybridgnet.json",
    log:
        "logs/weights/hybridgnet.log",
    benchmark:
        "results/benchmarks/weights/hybridgnet.tsv"
    conda:
        "../envs/weights.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(30),
    params:
        options=WEIGHTS["hybridgnet"],
        code=code_digest("weights.py", "ils.weights.placed", "ils.weights.hybridgnet"),
    script:
        "../scripts/weights.py"


use rule weights_hybridgnet as weights_cxas with:
    input:
        sources=PLACED["cxas"],
    output:
        weights=["results/weights/cxas.safetensors"],
        manifest="results/weights/cxas.json",
    log:
        "logs/weights/cxas.log",
    benchmark:
        "results/benchmarks/weights/cxas.tsv"
    params:
        options=WEIGHTS["cxas"],
        code=code_digest("weights.py", "ils.weights.placed", "ils.weights.cxas"),


use rule weights_hybridgnet as weights_ultralytics with:
    input:
        sources=PLACED["ultralytics"],
    output:
        weights=["results/weights/ultralytics.safetensors"],
        manifest="results/weights/ultralytics.json",
    log:
        "logs/weights/ultralytics.log",
    benchmark:
        "results/benchmarks/weights/ultralytics.tsv"
    params:
        options=WEIGHTS["ultralytics"],
        code=code_digest("weights.py", "ils.weights.placed", "ils.weights.ultralytics"),


use rule weights_hybridgnet as weights_scaled_yolov4 with:
    input:
        sources=PLACED["scaled_yolov4"],
    output:
        weights=[f"results/weights/scaled_yolov4/fold{fold}.safetensors" for fold in range(5)],
        manifest="results/weights/scaled_yolov4.json",
    log:
        "logs/weights/scaled_yolov4.log",
    benchmark:
        "results/benchmarks/weights/scaled_yolov4.tsv"
    params:
        options=WEIGHTS["scaled_yolov4"],
        code=code_digest("weights.py", "ils.weights.placed", "ils.weights.scaled_yolov4"),


rule weights:
    input:
        manifests=expand("results/weights/{artefact}.json", artefact=WEIGHTS_NEEDED),
    output:
        table=report(
            "results/weights/manifest.tsv",
            caption="../report/weights.rst",
            category="8 Versions",
            labels={"table": "published weights"},
        ),
    log:
        "logs/weights/weights.log",
    benchmark:
        "results/benchmarks/weights/weights.tsv"
    localrule: True
    conda:
        "../envs/weights.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(1000),
        runtime=minutes(10),
    params:
        code=code_digest("weights.py", "ils.weights.stage"),
    script:
        "../scripts/weights.py"
