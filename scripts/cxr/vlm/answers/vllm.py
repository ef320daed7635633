"""The engine vllm: in this job, with the chat of tuning; pictures of one prompt after another share their prefix."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from transformers import AutoConfig

from cxr.base.engines import engine_module
from cxr.base.errors import UserError
from cxr.vlm.answers.engine import AnswersOptions, Asked, Execution, Said
from cxr.vlm.families.engine import Family, load_family
from cxr.vlm.models import ADAPTERS, model_of, read_run
from cxr.vlm.tokens import Tokens

GPU = True


class Vllm:
    """A model that vLLM runs offline."""

    at_once = 0

    def __init__(self, model, adapter, tokens: Tokens, options: AnswersOptions):
        self.model, self.adapter, self.tokens, self.options = model, adapter, tokens, options

    def answer(self, requests: Sequence[Asked]) -> list[Said]:
        """Return the answers, in order."""
        from vllm import SamplingParams

        sampling = SamplingParams(
            temperature=0.0, max_tokens=self.options.max_new_tokens, seed=self.options.seed,
            stop_token_ids=[self.tokens.end], detokenize=False,
        )  # fmt: skip
        prompts = [
            {"prompt_token_ids": request.short, "multi_modal_data": {"image": Image.fromarray(request.picture)}}
            for request in requests
        ]
        outputs = self.model.generate(prompts, sampling, use_tqdm=False, lora_request=self.adapter)
        answers = []
        for output in outputs:
            ids = [token for token in output.outputs[0].token_ids if token != self.tokens.end]
            stop = "length" if output.outputs[0].finish_reason == "length" else "end"
            answers.append(Said(self.tokens.text(ids), len(ids), stop))
        return answers


def _positions(folder: str) -> int:
    """Return the longest text that a model's own configuration allows, in tokens: vLLM refuses more."""
    text = AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config()
    return getattr(text, "max_position_embeddings", None) or sys.maxsize


def load(run: Path, base: str, options: AnswersOptions, execution: Execution) -> Vllm:
    """Return the engine for a run."""
    # set before the imports, which read them
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
    facts, adapted = read_run(run), Path(run, ADAPTERS)
    with model_of(run, base) as folder:
        family = load_family(facts["family"], folder)
        _check(facts["family"], family, folder, adapted.is_dir())
        return _loaded(str(folder), family, adapted, options, execution)


def _check(name: str, family: Family, folder: Path, adapted: bool) -> None:
    """Raise UserError for a model that vLLM cannot ask, or would show other features than it has learnt."""
    module = engine_module("cxr.vlm.families", name)
    supported_tiles = getattr(module, "VLLM_TILES", "")
    if not getattr(module, "VLLM", True):
        reason = f"which cannot ask {name} here"
    elif adapted and not getattr(module, "VLLM_ADAPTERS", True):
        reason = f"which asks no adapter of {name}"
    elif supported_tiles and family.tiles != supported_tiles:
        reason = f"which takes {supported_tiles} for every model, but {folder} has {family.tiles}"
    else:
        return
    raise UserError(f"vlm.answers.engine is 'vllm', {reason}: set it to transformers")


def _loaded(folder: str, family: Family, adapted: Path, options: AnswersOptions, execution: Execution) -> Vllm:
    from vllm import LLM
    from vllm.lora.request import LoRARequest

    model = LLM(
        model=folder,
        seed=options.seed,
        dtype=options.dtype,
        max_model_len=min(options.max_length + options.max_new_tokens, _positions(folder)),
        tensor_parallel_size=max(1, execution.asked or 0),
        gpu_memory_utilization=execution.gpu_memory,
        enforce_eager=bool(options.own.get("eager", False)),
        enable_prefix_caching=True,  # all questions about a picture follow one another
        limit_mm_per_prompt={"image": 1},
        generation_config="vllm",
        enable_lora=adapted.is_dir(),
        max_lora_rank=max(8, int(options.own.get("rank", 8))),
    )
    adapter = LoRARequest("run", 1, str(adapted)) if adapted.is_dir() else None
    return Vllm(model, adapter, Tokens.read(folder, family.frame), options)
