# Weights of engines with a large net. Files of the hub are downloaded where Snakemake was started, because nodes may
# have no network. Files placed by hand are converted in a job. results/weights/<artefact>.json records the origin.


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
        "../../envs/weights.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(120),
    params:
        **job("imaging.weights.hub.run"),
        options=PLAN.weights.options["radedit"],
    message:
        "Weights of RadEdit: fetch"
    script:
        "../../scripts/job.py"


use rule weights_radedit as weights_sdxl_vae with:
    output:
        weights=directory("results/weights/sdxl_vae"),
        manifest="results/weights/sdxl_vae.json",
    log:
        "logs/weights/sdxl_vae.log",
    benchmark:
        "results/benchmarks/weights/sdxl_vae.tsv"
    localrule: True  # not inherited
    params:
        options=PLAN.weights.options["sdxl_vae"],
    message:
        "Weights of the autoencoder of SDXL: fetch"


use rule weights_radedit as weights_biovil_t with:
    output:
        weights=directory("results/weights/biovil_t"),
        manifest="results/weights/biovil_t.json",
    log:
        "logs/weights/biovil_t.log",
    benchmark:
        "results/benchmarks/weights/biovil_t.tsv"
    localrule: True  # not inherited
    params:
        options=PLAN.weights.options["biovil_t"],
    message:
        "Weights of BioViL-T: fetch"


rule weights_hybridgnet:
    input:
        sources=PLAN.weights.placed["hybridgnet"],
    output:
        weights=["results/weights/hybridgnet.safetensors"],
        manifest="results/weights/hybridgnet.json",
    log:
        "logs/weights/hybridgnet.log",
    benchmark:
        "results/benchmarks/weights/hybridgnet.tsv"
    conda:
        "../../envs/weights.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(30),
    params:
        **job("imaging.weights.placed.run", "imaging.weights.state_dict"),
        options=PLAN.weights.options["hybridgnet"],
    message:
        "Weights of HybridGNet: convert"
    script:
        "../../scripts/job.py"


use rule weights_hybridgnet as weights_cxas with:
    input:
        sources=PLAN.weights.placed["cxas"],
    output:
        weights=["results/weights/cxas.safetensors"],
        manifest="results/weights/cxas.json",
    log:
        "logs/weights/cxas.log",
    benchmark:
        "results/benchmarks/weights/cxas.tsv"
    params:
        **job("imaging.weights.placed.run", "imaging.weights.state_dict"),
        options=PLAN.weights.options["cxas"],
    message:
        "Weights of CXAS: convert"


use rule weights_hybridgnet as weights_ultralytics with:
    input:
        sources=PLAN.weights.placed["ultralytics"],
    output:
        weights=["results/weights/ultralytics.safetensors"],
        manifest="results/weights/ultralytics.json",
    log:
        "logs/weights/ultralytics.log",
    benchmark:
        "results/benchmarks/weights/ultralytics.tsv"
    params:
        **job("imaging.weights.placed.run", "imaging.weights.yolo"),
        options=PLAN.weights.options["ultralytics"],
    message:
        "Weights of the user's YOLO: convert"


use rule weights_hybridgnet as weights_scaled_yolov4 with:
    input:
        sources=PLAN.weights.placed["scaled_yolov4"],
    output:
        weights=[f"results/weights/scaled_yolov4/fold{fold}.safetensors" for fold in range(5)],
        manifest="results/weights/scaled_yolov4.json",
    log:
        "logs/weights/scaled_yolov4.log",
    benchmark:
        "results/benchmarks/weights/scaled_yolov4.tsv"
    params:
        **job("imaging.weights.placed.run", "imaging.weights.yolo"),
        options=PLAN.weights.options["scaled_yolov4"],
    message:
        "Weights of Scaled-YOLOv4: convert"


rule weights:
    input:
        manifests=expand("results/weights/{artefact}.json", artefact=[*PLAN.weights.needed, *PLAN.weights.models]),
    output:
        table=report(
            "results/weights/manifest.tsv",
            caption="../../report/weights.rst",
            category="8 Versions",
            labels={"table": "published weights"},
        ),
    log:
        "logs/weights/weights.log",
    benchmark:
        "results/benchmarks/weights/weights.tsv"
    localrule: True
    conda:
        "../../envs/weights.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(1000),
        runtime=minutes(10),
    params:
        **job("imaging.weights.manifest.list_sources"),
    message:
        "Weights: table of the origin of each file"
    script:
        "../../scripts/job.py"
