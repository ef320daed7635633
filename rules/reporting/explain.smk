# Explain: every decision about one study, read from the existing results: snakemake explain --config study=…


# The results are no inputs, so that this target makes none. Their digest is a param, so changed ones remake the page.
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
    # local, because the job prints its text in the terminal
    localrule: True
    conda:
        "../../envs/explain.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(5),
    params:
        **job("reporting.explain.explain_study.run"),
        # the wildcard differs from the study's id if the id has characters that a file name must not have
        options=lambda wildcards: PLAN.options["explain"]
        | {
            "study": PLAN.reporting.explain["study"] or wildcards.study,
            "results_digest": PLAN.reporting.explain["results_digest"],
        },
    message:
        "Every decision about the study {wildcards.study}"
    script:
        "../../scripts/job.py"


rule explain:
    input:
        lambda wildcards: wanted(
            expand("results/explain/{study}.html", study=PLAN.reporting.explain["page"] or []),
            "explain needs a study: snakemake explain --config study=<study_id>",
        ),
