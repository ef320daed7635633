# Phantom: the embedded cohort, synthetic X-rays and reports whose truth is known.


rule phantom:
    output:
        manifest="results/phantom/manifest.csv",
        truth="results/phantom/truth.jsonl",
        truth_masks="results/phantom/truth.h5",
    log:
        "logs/phantom/phantom.log",
    benchmark:
        "results/benchmarks/phantom/phantom.tsv"
    conda:
        "../envs/phantom.yaml"
    threads: 2
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        options=OPTIONS["phantom"],
        code=code_digest("phantom.py"),
    script:
        "../scripts/phantom.py"
