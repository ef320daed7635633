# Explain: everything that was decided about one study, from the results as they are: snakemake explain --config study=…


# No results are inputs, so nothing is made for a question; what they are is a param, so that a page is made anew.
rule explain_study:
    output:
        page="results/explain/{study}.html",
        text="results/explain/{study}.txt",
    log:
        "logs/explain/{study}.log",
    benchmark:
        "results/benchmarks/explain/{study}.tsv"
    wildcard_constraints:
        study="[^/]+",
    # it prints on the screen
    localrule: True
    conda:
        "../../envs/explain.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(5),
    params:
        **job("reporting.explain.explain_study.run"),
        # the page's name is not the study's where that holds what a file name or a wildcard may not
        options=lambda wildcards: PLAN.options["explain"]
        | {"study": PLAN.explain["study"] or wildcards.study, "held": PLAN.explain["held"]},
    message:
        "Every decision about the study {wildcards.study}"
    script:
        "../../scripts/job.py"


rule explain:
    input:
        lambda wildcards: wanted(
            expand("results/explain/{study}.html", study=PLAN.explain["page"] or []),
            "explain needs a study: snakemake explain --config study=<study_id>",
        ),
