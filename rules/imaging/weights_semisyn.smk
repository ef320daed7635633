# Weights for SemiSynCXR, in addition to those in weights.smk.


use rule weights_hybridgnet as weights_xrv with:
    input:
        sources=PLAN.weights.placed["xrv"],
    output:
        weights=["results/weights/xrv.safetensors"],
        manifest="results/weights/xrv.json",
    log:
        "logs/weights/xrv.log",
    benchmark:
        "results/benchmarks/weights/xrv.tsv"
    params:
        **job("imaging.weights.placed.run", "imaging.weights.state_dict"),
        options=PLAN.weights.options["xrv"],
    message:
        "Weights of torchxrayvision's DenseNet-121: convert"


use rule weights_hybridgnet as weights_inception with:
    input:
        sources=PLAN.weights.placed["inception"],
    output:
        weights=["results/weights/inception.safetensors"],
        manifest="results/weights/inception.json",
    log:
        "logs/weights/inception.log",
    benchmark:
        "results/benchmarks/weights/inception.tsv"
    params:
        **job("imaging.weights.placed.run", "imaging.weights.state_dict"),
        options=PLAN.weights.options["inception"],
    message:
        "Weights of FID's Inception-v3: convert"
