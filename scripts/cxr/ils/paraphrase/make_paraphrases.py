"""The paraphrase stage: collect the distinct instructions of a dataset, and reword each in the style of each persona.

Both outputs are JSON Lines. The first has one line per instruction with type, word (the lesion type) and location.
These are null for a text that Table 2 does not produce, as in a release by others. The second has one line per
instruction and persona with wordings (empty if none is usable), problem (the reason, or null), raw (the engine's last
answer if it was unusable), attempts (their number) and made_by (engine or model).
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace

import polars as pl

from cxr.base.columns import read_columns, schema
from cxr.base.errors import UserError
from cxr.base.tables import read_lines, write_lines, write_table
from cxr.ils.paraphrase import engine
from cxr.ils.paraphrase.engine import Rewording, Task
from cxr.ils.paraphrase.settings import ParaphraseOptions
from cxr.ils.paraphrase.wording_checks import find_problem
from cxr.ils.templates import Instruction, parse_instruction

log = logging.getLogger("cxr")
MAX_LOGGED_LETTERS = 1000  # maximum number of logged characters of an answer, which has no patient text
NOT_AN_INSTRUCTION = "not an instruction of Table 2"
RESOURCE_FILES = ("columns/paraphrase.toml",)
COUNTS = read_columns("paraphrase", "counts")


def run_instructions(*, lines: Sequence[str], output: str) -> None:
    """Write the distinct instructions of the pairs in the files ``lines`` to the file ``output``."""
    texts = sorted({line["instruction"] for path in lines for line in read_lines(path)})
    rows = []
    for text in texts:
        try:
            meant = asdict(parse_instruction(text))
        except ValueError:
            rows.append({"instruction": text, "type": None, "word": None, "location": None})
        else:
            rows.append({"instruction": text} | meant | {"location": list(meant["location"])})
    unknown = sum(row["type"] is None for row in rows)
    log.info("paraphrase: %d distinct instructions, %d of them not of Table 2", len(rows), unknown)
    write_lines(output, rows, checked=True)


def run(*, instructions: str, wordings: str, counts_table: str, options: ParaphraseOptions, execution: dict) -> None:
    """Write the ``wordings`` of the ``instructions`` and a table of counts. Raises UserError if nothing is reworded."""
    rows = list(read_lines(instructions))
    lines = reword_all(rows, options, engine.load_engine(options, execution))
    write_lines(wordings, lines, checked=True)
    table = count_rewordings(lines)
    write_table(counts_table, table, COUNTS)
    without = table["plain_only"].sum()
    if without:
        log.warning("paraphrase: %d of %d rewordings failed: see %s", without, len(lines), counts_table)
    typed_lines = [line for line in lines if line["type"] is not None]
    if typed_lines and not any(line["wordings"] for line in typed_lines):
        reason = Counter(line["problem"] for line in typed_lines).most_common(1)[0][0]
        first = typed_lines[0]
        log.info("paraphrase: the last answer for %r: %s", first["instruction"], first["raw"][:MAX_LOGGED_LETTERS])
        fault = f"paraphrase: none of {len(rows)} instructions could be reworded, mostly because of {reason!r}"
        raise UserError(f"{fault}: try another model, or set paraphrase.engine to rules")


def reword_all(rows: Sequence[dict], options: ParaphraseOptions, reword_engine: engine.Engine) -> list[dict]:
    """Return one output line per instruction and persona: its wordings or, if a reply is unusable, the problem."""
    meaning_by_text = {
        row["instruction"]: Instruction(row["type"], row["word"], tuple(row["location"]))
        for row in rows
        if row["type"] is not None
    }
    taken: dict[str, list[str]] = {text: [] for text in meaning_by_text}
    rewording_by_task: dict[tuple[str, str], Rewording] = {}
    for persona in options.personas:
        tasks = [Task(text, meant, tuple(taken[text])) for text, meant in meaning_by_text.items()]
        for task, rewording in zip(tasks, reword_engine.reword(tasks, persona) if tasks else [], strict=True):
            if problem := rewording.problem or find_problem(rewording.wordings, task):
                raw = rewording.raw or "\n".join(rewording.wordings)
                rewording = replace(rewording, wordings=(), problem=problem, raw=raw)
            rewording_by_task[task.text, persona] = rewording
            taken[task.text] += rewording.wordings
    unknown = Rewording((), NOT_AN_INSTRUCTION, "", 0)
    lines = []
    for row in rows:
        for persona in options.personas:
            rewording = rewording_by_task.get((row["instruction"], persona), unknown)
            fields = asdict(rewording) | {"wordings": list(rewording.wordings)}
            lines.append(row | {"persona": persona} | fields | {"made_by": reword_engine.made_by})
    return lines


def count_rewordings(lines: Sequence[dict]) -> pl.DataFrame:
    """Return the table ``COUNTS``, which counts instructions with and without wordings by persona and type."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for line in lines:
        groups.setdefault((line["persona"], line["type"] or "unknown"), []).append(line)
    rows = []
    for (persona, kind), members in groups.items():
        reasons = Counter(line["problem"] for line in members if line["problem"])
        text, without = "; ".join(f"{reason}: {number}" for reason, number in sorted(reasons.items())), reasons.total()
        rows.append((persona, kind, len(members), len(members) - without, without, text))
    return pl.DataFrame(rows, schema=schema(COUNTS), orient="row").sort("persona", "type", maintain_order=True)
