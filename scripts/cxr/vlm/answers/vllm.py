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

    def answer(self, asked: Sequence[Asked]) -> list[Said]:
        """Return the answers, in order."""
        from vllm import SamplingParams

        how = SamplingParams(
            temperature=0.0, max_tokens=self.options.max_new_tokens, seed=self.options.seed,
            stop_token_ids=[self.tokens.end], detokenize=False,
        )  # fmt: skip
        prompts = [
            {"prompt_token_ids": one.short, "multi_modal_data": {"image": Image.fromarray(one.picture)}}
            for one in asked
        ]
        outputs = self.model.generate(prompts, how, use_tqdm=False, lora_request=self.adapter)
        said = []
        for output in outputs:
            ids = [one for one in output.outputs[0].token_ids if one != self.tokens.end]
            stop = "length" if output.outputs[0].finish_reason == "length" else "end"
            said.append(Said(self.tokens.text(ids), len(ids), stop))
        return said


def _positions(folder: str) -> int:
    """Return the longest text that a model's own configuration allows, in tokens: vLLM refuses more."""
    text = AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config()
    return getattr(text, "max_position_embeddings", None) or sys.maxsize


def load(run: Path, base: str, options: AnswersOptions, how: Execution) -> Vllm:
    """Return the engine for a run."""
    # set before the imports, which read them
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
    facts, adapted = read_run(run), Path(run, ADAPTERS)
    with model_of(run, base) as folder:
        family = load_family(facts["family"], folder)
        _check(facts["family"], family, folder, adapted.is_dir())
        return _loaded(str(folder), family, adapted, options, how)


def _check(name: str, family: Family, folder: Path, adapted: bool) -> None:
    """Raise UserError for a model that vLLM cannot ask, or would show other features than it has learnt."""
    module = engine_module("cxr.vlm.families", name)
    known = getattr(module, "VLLM_TILES", "")
    if not getattr(module, "VLLM", True):
        told = f"which cannot ask {name} here"
    elif adapted and not getattr(module, "VLLM_ADAPTERS", True):
        told = f"which asks no adapter of {name}"
    elif known and family.tiles != known:
        told = f"which takes {known} for every model, but {folder} has {family.tiles}"
    else:
        return
    raise UserError(f"vlm.answers.engine is 'vllm', {told}: set it to transformers")


def _loaded(folder: str, family: Family, adapted: Path, options: AnswersOptions, how: Execution) -> Vllm:
    from vllm import LLM
    from vllm.lora.request import LoRARequest

    model = LLM(
        model=folder,
        seed=options.seed,
        dtype=options.dtype,
        max_model_len=min(options.max_length + options.max_new_tokens, _positions(folder)),
        tensor_parallel_size=max(1, how.asked or 0),
        gpu_memory_utilization=how.gpu_memory,
        enforce_eager=bool(options.own.get("eager", False)),
        enable_prefix_caching=True,  # all questions about a picture follow one another
        limit_mm_per_prompt={"image": 1},
        generation_config="vllm",
        enable_lora=adapted.is_dir(),
        max_lora_rank=max(8, int(options.own.get("rank", 8))),
    )
    adapter = LoRARequest("run", 1, str(adapted)) if adapted.is_dir() else None
    return Vllm(model, adapter, Tokens.read(folder, family.frame), options)
