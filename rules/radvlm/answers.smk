# RadVLM, all that stands: the mixes, and the answers of the models that are tuned on them.


rule radvlm:
    input:
        rules.radvlm_instructions.input,
        PLAN.vlm.answered("radvlm"),
