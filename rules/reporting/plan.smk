# Plan: what all four systems would make and cost, and what would be refused. It is printed, and no job runs.


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
