# Agreement: how well masks, anomaly maps and boxes agree with what people drew (agreement.references).


rule agreement_images:
    input:
        reference=lambda wildcards: REFERENCES[wildcards.reference]["path"],
        images="results/cohort/images.parquet",
        frames=expand("results/frames/{shard}.h5", shard=SHARDS),
        organs=expand("results/organs/{shard}.h5", shard=SHARDS),
        anomaly=expand("results/anomaly/{shard}.h5", shard=SHARDS),
        boxes=expand("results/boxes/{shard}.parquet", shard=SHARDS),
        boxes_excluded=expand("results/boxes/{shard}.excluded.parquet", shard=SHARDS),
        # set by set
        findings=expand("results/masks/{thresholds}/{shard}.findings.parquet", thresholds=BUILT, shard=SHARDS),
        studies=expand("results/masks/{thresholds}/{shard}.studies.parquet", thresholds=BUILT, shard=SHARDS),
        masks=expand("results/masks/{thresholds}/{shard}.h5", thresholds=BUILT, shard=SHARDS),
    output:
        values="results/agreement/{reference}/values.parquet",
        left_out="results/agreement/{reference}/left_out.parquet",
    log:
        "logs/agreement/{reference}.log",
    benchmark:
        "results/benchmarks/agreement/{reference}.tsv"
    wildcard_constraints:
        reference="|".join(map(re.escape, REFERENCES)) or "-",
    conda:
        "../envs/agreement.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(8000),
        runtime=minutes(120),
    params:
        options=lambda wildcards: OPTIONS["agreement"] | REFERENCES[wildcards.reference],
        code=code_digest("agreement.py", "ils.agreement.stage"),
    script:
        "../scripts/agreement.py"


rule agreement_scores:
    input:
        values=lambda wildcards: wanted(
            expand("results/agreement/{reference}/values.parquet", reference=REFERENCES),
            "agreement.references is empty, so there is nothing to compare with: name a file of boxes or masks that "
            "people drew (docs/agreement.md)",
        ),
        left_out_parts=expand("results/agreement/{reference}/left_out.parquet", reference=REFERENCES),
    output:
        scores=report(
            "results/agreement/scores.tsv",
            caption="../report/agreement_scores.rst",
            category="5 Beside the truth",
            subcategory="what people drew",
            labels={"result": "scores (table)"},
        ),
        population=report(
            "results/agreement/population.tsv",
            caption="../report/agreement_population.rst",
            category="5 Beside the truth",
            subcategory="what people drew",
            labels={"result": "what was compared (table)"},
        ),
        left_out="results/agreement/left_out.parquet",
    log:
        "logs/agreement/scores.log",
    benchmark:
        "results/benchmarks/agreement/scores.tsv"
    group:
        "agreement"
    conda:
        "../envs/agreement.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(4000),
        runtime=minutes(60),
    params:
        options=OPTIONS["agreement_scores"],
        code=code_digest("agreement.py", "ils.agreement.stage"),
    script:
        "../scripts/agreement.py"


rule agreement_charts:
    input:
        scores="results/agreement/scores.tsv",
    output:
        bars=report(
            "results/agreement/bars.png",
            caption="../report/agreement_bars.rst",
            category="5 Beside the truth",
            subcategory="what people drew",
            labels={"result": "masks and pointing"},
        ),
        curves=report(
            "results/agreement/curves.png",
            caption="../report/agreement_curves.rst",
            category="5 Beside the truth",
            subcategory="what people drew",
            labels={"result": "curves over thresholds"},
        ),
    log:
        "logs/agreement/charts.log",
    benchmark:
        "results/benchmarks/agreement/charts.tsv"
    group:
        "agreement"
    conda:
        "../envs/agreement.yaml"
    threads: 1
    resources:
        mem_mb=megabytes(2000),
        runtime=minutes(10),
    params:
        options=OPTIONS["agreement_charts"],
        code=code_digest("agreement.py", "ils.agreement.charts"),
    script:
        "../scripts/agreement.py"


rule agreement:
    input:
        rules.agreement_scores.output,
        rules.agreement_charts.output,
