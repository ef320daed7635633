# Plan: print the expected results and costs of all four systems and the reasons to refuse a run. No job runs.


rule plan:
    input:
        rules.dataset.input,
        rules.tables.input,
        rules.figures.input,
        rules.page.input,
        rules.evaluation.input,
        rules.semisyn.input,
        rules.medground.input,
        rules.medground_scoring.input,
        rules.radvlm.input,
