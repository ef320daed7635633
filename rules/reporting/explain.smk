# Explain: every decision about one study, from the existing results: snakemake explain --config study=…


# The results are not inputs, so a question makes none of them. Their state is a param, so a page is remade if it changes.
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
    # the job prints its text on the screen
    localrule: True
    conda:
        "../../envs/explain.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(5),
    params:
        **job("reporting.explain.explain_study.run"),
        # the page's name differs from the study's if that has characters that a file name or wildcard must not have
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
