# Agreement: masks, anomaly maps and boxes compared with human annotations (agreement.references).


rule agreement_images:
    input:
        reference=lambda wildcards: PLAN.reporting.references[wildcards.reference]["path"],
        images="results/cohort/images.parquet",
        frames=expand("results/frames/{shard}.h5", shard=PLAN.shards),
        organs=expand("results/organs/{shard}.h5", shard=PLAN.shards),
        anomaly=expand("results/anomaly/{shard}.h5", shard=PLAN.shards),
        boxes=expand("results/boxes/{shard}.parquet", shard=PLAN.shards),
        boxes_excluded=expand("results/boxes/{shard}.excluded.parquet", shard=PLAN.shards),
        # in the order of the threshold sets
        findings=expand("results/masks/{thresholds}/{shard}.findings.parquet", thresholds=PLAN.built, shard=PLAN.shards),
        studies=expand("results/masks/{thresholds}/{shard}.studies.parquet", thresholds=PLAN.built, shard=PLAN.shards),
        masks=expand("results/masks/{thresholds}/{shard}.h5", thresholds=PLAN.built, shard=PLAN.shards),
    output:
        values="results/agreement/{reference}/values.parquet",
        excluded="results/agreement/{reference}/excluded.parquet",
    log:
        "logs/agreement/{reference}.log",
    benchmark:
        "results/benchmarks/agreement/{reference}.tsv"
    wildcard_constraints:
        reference="|".join(map(re.escape, PLAN.reporting.references)) or "-",
    conda:
        "../../envs/agreement.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(120),
    params:
        **job("reporting.agreement.compare.run_images", *PLAN.reporting.reference_formats),
        options=lambda wildcards: PLAN.options["agreement"] | PLAN.reporting.references[wildcards.reference],
    message:
        "Masks, maps and boxes compared with the human annotations {wildcards.reference}"
    script:
        "../../scripts/job.py"


rule agreement_scores:
    input:
        values=lambda wildcards: wanted(
            expand("results/agreement/{reference}/values.parquet", reference=PLAN.reporting.references),
            "agreement.references is empty, so there is nothing to compare with: name a file of annotated boxes or "
            "masks (docs/how-to/agreement.md)",
        ),
        excluded_parts=expand("results/agreement/{reference}/excluded.parquet", reference=PLAN.reporting.references),
    output:
        scores=report(
            "results/agreement/scores.tsv",
            caption="../../report/agreement_scores.rst",
            category="5 Comparison with the truth",
            subcategory="human annotations",
            labels={"result": "scores (table)"},
        ),
        population=report(
            "results/agreement/population.tsv",
            caption="../../report/agreement_population.rst",
            category="5 Comparison with the truth",
            subcategory="human annotations",
            labels={"result": "compared images (table)"},
        ),
        excluded="results/agreement/excluded.parquet",
    log:
        "logs/agreement/scores.log",
    benchmark:
        "results/benchmarks/agreement/scores.tsv"
    group:
        "agreement"
    conda:
        "../../envs/agreement.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        **job("reporting.agreement.compare.run_scores"),
        options=PLAN.options["agreement_scores"],
    message:
        "Agreement with all human annotations"
    script:
        "../../scripts/job.py"


rule agreement_charts:
    input:
        scores="results/agreement/scores.tsv",
    output:
        bars=report(
            "results/agreement/bars.png",
            caption="../../report/agreement_bars.rst",
            category="5 Comparison with the truth",
            subcategory="human annotations",
            labels={"result": "masks and pointing"},
        ),
        curves=report(
            "results/agreement/curves.png",
            caption="../../report/agreement_curves.rst",
            category="5 Comparison with the truth",
            subcategory="human annotations",
            labels={"result": "curves over thresholds"},
        ),
    log:
        "logs/agreement/charts.log",
    benchmark:
        "results/benchmarks/agreement/charts.tsv"
    group:
        "agreement"
    conda:
        "../../envs/agreement.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        **job("reporting.agreement.charts.run_charts"),
        dpi=PLAN.options["figures"]["dpi"],
    message:
        "Figures of the agreement with human annotations"
    script:
        "../../scripts/job.py"


rule agreement:
    input:
        rules.agreement_scores.output,
        rules.agreement_charts.output,
