"""Asking vLLM inside the job, without a network. Schemas constrain the answers, and all questions form one batch."""

import os

from cxr.base.errors import UserError
from cxr.llm.asking import Generate, Question
from cxr.llm.messages import vllm_messages
from cxr.llm.options import Execution, ModelOptions
from cxr.llm.replies import Reply
from cxr.nets.hub import find_downloaded_model


def connect(options: ModelOptions, execution: Execution) -> Generate:
    """Load the model and return a function that asks it. Raises UserError if the model is not on this machine."""
    # the imports below read these variables
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
    folder = find_downloaded_model(options.key, options.model, options.revision)  # a job never downloads
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    model = LLM(
        model=folder,
        seed=options.seed,
        dtype=options.dtype,
        max_model_len=options.context,
        tensor_parallel_size=max(1, execution.gpus),
        gpu_memory_utilization=execution.gpu_memory,
        enforce_eager=not execution.gpus,  # compiling for the CPU takes longer than it saves
        enable_prefix_caching=True,  # all questions share the prompt's rules
        limit_mm_per_prompt={"image": options.pictures},
        generation_config="vllm",  # ignore the sampling defaults in the model's folder
    )

    if options.pictures and not model.model_config.is_multimodal_model:
        raise UserError(f"{options.key}.model: {options.name} does not accept images: choose a model that does")

    def generate(questions: list[Question], attempt: int) -> list[Reply]:
        params = []
        for question in questions:
            temperature, seed = options.sampling(attempt, question.seed)
            # whitespace is not constrained, because forcing compact JSON makes answers worse
            json_constraint = None if question.schema is None else StructuredOutputsParams(json=question.schema)
            how = {"temperature": temperature, "seed": seed, "max_tokens": options.max_tokens}
            params.append(SamplingParams(**how, structured_outputs=json_constraint))
        outputs = model.chat([vllm_messages(question.messages) for question in questions], params, use_tqdm=True)
        return [output.outputs[0].text for output in outputs]

    return generate
