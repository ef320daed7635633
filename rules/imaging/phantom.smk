# Phantom: the embedded cohort of synthetic X-rays and reports with known ground truth.


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
        "../../envs/phantom.yaml"
    threads: 2
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(30),
    params:
        **job("imaging.phantom.make_phantom.run"),
        options=PLAN.options["phantom"],
    message:
        "Embedded cohort: synthetic X-rays, their reports and the ground truth"
    script:
        "../../scripts/job.py"
