"""Measure vLLM inside a job with a small language model: seconds to load it, and texts per second.

    python benchmarks/language_model_speed.py [--device cpu|cuda] [--texts 512] [--tokens 128] [--tiny]
        [--output benchmarks/language_model_speed.tsv]

The model is a Llama with 1 billion random weights, or with two small layers for `--tiny`. Its answers follow the schema
of the reports but have no meaning. The paper's models are fifty times as large, so they take longer to load. All texts
are one batch, as in a job. The program needs vLLM in this interpreter; `make vllm` makes an environment for the CPU.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("scripts", "tests", "tests/support")]

import polars as pl  # noqa: E402
import torch  # noqa: E402

import tiny_llm  # noqa: E402
from cxr.base.tables import write_table  # noqa: E402
from cxr.language.reports.llm.questions import structuring_question  # noqa: E402
from cxr.llm.client import connect  # noqa: E402
from cxr.llm.options import Execution, ModelOptions  # noqa: E402

SENTENCES = ("The heart is enlarged.", "There is a small left effusion.", "No pneumothorax.", "Mild edema, number {}.")
SHARDS = 64
COLUMNS = {"what": pl.String, "value": pl.Float64, "unit": pl.String}


def write_model(folder: Path, questions: list, *, tiny: bool) -> None:
    """Write a model with random weights, and a tokenizer that knows the words of the questions."""
    from transformers import LlamaConfig, LlamaForCausalLM

    lessons = [(question.messages, '{"findings": []}') for question in questions[:8]]
    tokenizer = tiny_llm.tokenizer_of(lessons)
    hidden, layers = (256, 2) if tiny else (2048, 16)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 64, num_key_value_heads=hidden // 64, bos_token_id=0, eos_token_id=1,
        pad_token_id=2, max_position_embeddings=tiny_llm.CONTEXT, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def measured(given: argparse.Namespace, folder: Path) -> list[tuple[str, float, str]]:
    """Return rows (description, value, unit)."""
    texts = [[one.format(number) for one in SENTENCES] for number in range(given.texts)]
    questions = [structuring_question(sentences) for sentences in texts]
    write_model(folder, questions, tiny=given.tiny)
    options = ModelOptions(
        key="reports.llm.structuring", transport="offline", model=str(folder), revision="", context=4096, dtype="auto",
        max_tokens=given.tokens, temperature=0.0, retries=0, retry_temperature=0.5, seed=1,
    )  # fmt: skip
    gpus = int(given.device == "cuda")
    how = Execution(gpus=gpus, gpu_memory=0.9, server="", server_key="", requests=1, timeout_s=60)
    began = time.perf_counter()
    generate = connect(options, how)
    load = time.perf_counter() - began
    began = time.perf_counter()
    generate(questions, 0)
    took = time.perf_counter() - began
    return [
        ("vLLM, small model, load", load, "s"),
        ("vLLM, small model, texts", given.texts / took, "texts a second"),
        (f"vLLM, small model, loads that one job for {SHARDS} shards saves", (SHARDS - 1) * load / 3600, "hours"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--output", default="benchmarks/language_model_speed.tsv")
    given = parser.parse_args()
    if given.device == "cpu":
        import vllm_cpu

        os.environ.update(vllm_cpu.IN_THE_JOB)
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(given, Path(folder))
    for what, value, unit in rows:
        print(f"{what}: {value:.3g} {unit}")
    table = pl.DataFrame(rows, schema=COLUMNS, orient="row").with_columns(pl.col(pl.Float64).round_sig_figs(3))
    write_table(given.output, table)


if __name__ == "__main__":
    main()
