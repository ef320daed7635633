"""Token counts of queries and of training texts, with the user's tokenizer."""

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from cxr.base.columns import read_columns
from cxr.base.errors import refuse_unreadable
from cxr.base.tables import read_lines, write_table
from cxr.vlm.conventions import InputSize, find_convention
from cxr.vlm.samples import parse_sample

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CONVENTION = "grid1000"
SCHEMA = {"source": pl.String, "split": pl.String, "query": pl.Int64, "line": pl.Int64}
RESOURCE_FILES = ("columns/medground_dataset.toml",)
TOKENS = read_columns("medground_dataset", "tokens")


def load_tokenizer(path: str) -> "PreTrainedTokenizerBase":
    """Return the tokenizer in a model's folder or a file tokenizer.json. Raises UserError if it cannot be read."""
    from transformers import AutoTokenizer  # not at the top: the columns are read without it

    folder = Path(path).parent if Path(path).is_file() else Path(path)
    problem = f"medground.dataset.tokenizer: {path} has no tokenizer that can be read"
    with refuse_unreadable(path, problem, "give a model's folder"):
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)


def run(*, lines: list[str], tokens: str, tokenizer: str) -> None:
    """Write the token counts of the queries in ``lines`` to ``tokens``. ``tokenizer``: folder or tokenizer.json."""
    tokenize, convention, rows = load_tokenizer(tokenizer), find_convention(CONVENTION), []
    for path in lines:
        for line in read_lines(path):
            sample = parse_sample(line)
            text = f"{sample.question(0, convention)}\n{sample.answer(0, convention, InputSize(1000, 1000))}"
            counts = (len(tokenize(part, add_special_tokens=False).input_ids) for part in (line["query"], text))
            rows.append((line["source"], Path(path).stem, *counts))
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    means = {"query_tokens": pl.mean("query"), "line_tokens": pl.mean("line"), "total_tokens": pl.sum("line")}
    groups = (part.group_by("source", "split") for part in (table, table.with_columns(source=pl.lit("total"))))
    parts = [group.agg(queries=pl.len().cast(pl.Int64), **means).sort("source", "split") for group in groups]
    write_table(tokens, pl.concat(parts), TOKENS)
