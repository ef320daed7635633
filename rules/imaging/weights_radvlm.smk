# Weights that RadVLM needs besides those of the stages.


use rule weights_hybridgnet as weights_chexbert with:
    input:
        sources=PLAN.placed["chexbert"],
    output:
        weights=["results/weights/chexbert.safetensors"],
        manifest="results/weights/chexbert.json",
    log:
        "logs/weights/chexbert.log",
    benchmark:
        "results/benchmarks/weights/chexbert.tsv"
    params:
        **job("imaging.weights.placed.run", "imaging.weights.chexbert"),
        options=PLAN.weights["chexbert"],
    message:
        "Weights of CheXbert: convert"
