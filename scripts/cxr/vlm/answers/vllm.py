"""The engine vllm: vLLM inside the job, with the chat template of the tuning. Common prompt prefixes are cached."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from transformers import AutoConfig

from cxr.base.engines import Setup, engine_module
from cxr.base.errors import UserError
from cxr.vlm.answers.engine import AnswersOptions, ModelAnswer, TurnRequest
from cxr.vlm.collate import Collator
from cxr.vlm.families.engine import FAMILIES, Family
from cxr.vlm.models import ADAPTER, ADAPTERS, read_run, run_model
from cxr.vlm.tokens import Tokens

GPU = True


class Vllm:
    """A model that vLLM runs offline."""

    at_once = 0

    def __init__(self, model, adapter, tokens: Tokens, options: AnswersOptions):
        self.model, self.adapter, self.tokens, self.options = model, adapter, tokens, options

    def answer(self, requests: Sequence[TurnRequest]) -> list[ModelAnswer]:
        from vllm import SamplingParams

        sampling = SamplingParams(
            temperature=0.0, max_tokens=self.options.max_new_tokens, seed=self.options.seed,
            stop_token_ids=[self.tokens.end], detokenize=False,
        )  # fmt: skip
        image_token, prompts = self.tokens.picture, []
        for request in requests:
            # vLLM itself repeats an image's token
            before = [None, *request.encoded.ids]
            pairs = zip(before, request.encoded.ids, strict=False)
            ids = [token for previous, token in pairs if not previous == token == image_token]
            image = {"image": Image.fromarray(request.picture)}
            prompts.append({"prompt_token_ids": ids, "multi_modal_data": image})
        outputs = self.model.generate(prompts, sampling, use_tqdm=False, lora_request=self.adapter)
        answers = []
        for output in outputs:
            ids = [token for token in output.outputs[0].token_ids if token != self.tokens.end]
            stop = "length" if output.outputs[0].finish_reason == "length" else "end"
            answers.append(ModelAnswer(self.tokens.text(ids), len(ids), stop))
        return answers


def load(run: Path, base: str, options: AnswersOptions, setup: Setup, collator: Collator) -> Vllm:
    """Return the engine with the model of a run."""
    # the imports below read these
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
    facts, adapted = read_run(run), Path(run, ADAPTERS)
    with run_model(run, base) as folder:
        _check_supported(facts["family"], collator.family, folder, adapted.is_dir())
        from vllm import LLM
        from vllm.lora.request import LoRARequest

        text_config = AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config()
        max_positions = getattr(text_config, "max_position_embeddings", None) or sys.maxsize
        rank = json.loads((adapted / ADAPTER).read_text(encoding="utf-8"))["r"] if adapted.is_dir() else 0
        model = LLM(
            model=str(folder),
            seed=options.seed,
            dtype=options.dtype,
            max_model_len=min(options.max_length + options.max_new_tokens, max_positions),  # vLLM refuses more
            tensor_parallel_size=max(1, setup.requested_gpus or 0),
            gpu_memory_utilization=0.9,
            enforce_eager=not setup.requested_gpus,  # compiling for the CPU takes longer than it saves
            enable_prefix_caching=True,  # questions about an image are consecutive
            limit_mm_per_prompt={"image": 1},
            generation_config="vllm",
            enable_lora=adapted.is_dir(),
            max_lora_rank=max(8, rank),
        )
        adapter = LoRARequest("run", 1, str(adapted)) if adapted.is_dir() else None
        return Vllm(model, adapter, collator.tokens, options)


def _check_supported(name: str, family: Family, folder: Path, adapted: bool) -> None:
    """Raise UserError for a model that vLLM does not support, or whose image tiles vLLM would change."""
    module = engine_module(FAMILIES, name)
    tiles, reason = getattr(module, "VLLM_TILES", ""), ""
    if not getattr(module, "VLLM", True):
        reason = f"which does not support the engine {name}"
    elif adapted and not getattr(module, "VLLM_ADAPTERS", True):
        reason = f"which does not support adapters of {name}"
    elif tiles and family.tiles != tiles:
        reason = f"which uses {tiles} for every model, but {folder} has {family.tiles}"
    if reason:
        raise UserError(f"vlm.answers.engine is 'vllm', {reason}: set vlm.answers.engine to transformers")
