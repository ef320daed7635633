# The page of RadVLM alone, results/radvlm.html: `snakemake radvlm` ends here.


rule page_radvlm:
    input:
        comparison="results/radvlm/evaluation/comparison.tsv",
        check="results/radvlm/evaluation/judge_check.tsv",
        conservation="results/radvlm/evaluation/conservation.tsv",
        gallery="results/radvlm/evaluation/gallery",
        charts=expand("results/radvlm/evaluation/{chart}.png", chart=("looks", "labels", "ablation")),
    output:
        page="results/radvlm.html",
    log:
        "logs/page/radvlm.log",
    benchmark:
        "results/benchmarks/page/radvlm.tsv"
    localrule: True
    conda:
        "../../envs/page.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("reporting.page.radvlm.run"),
        options=PLAN.options["page_radvlm"],
    message:
        "The page of RadVLM: results/radvlm.html"
    script:
        "../../scripts/job.py"
