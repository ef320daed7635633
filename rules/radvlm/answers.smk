# RadVLM, the whole: the mixes, the answers of the models that are tuned on them, and their scores.


rule radvlm:
    input:
        rules.radvlm_instructions.input,
        PLAN.vlm.answered("radvlm"),
        rules.radvlm_evaluation.input,
