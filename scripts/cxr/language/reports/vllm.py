"""The paper's engine. It joins the findings that one language model extracts with the locations that another maps."""

from cxr.base.errors import UserError
from cxr.base.tables import read_lines
from cxr.language.reports.engine import Structure
from cxr.language.reports.schema import Quarantined

INPUTS = {"structured": "results/reports/structured/{shard}.jsonl", "mapping": "results/reports/mapping.jsonl"}
"""Files that the engine reads besides the cohort. The Snakemake rules that run the two models write them.
``structured`` has the findings of a shard, and ``mapping`` the categories and zone labels of all locations."""


def load(options) -> Structure:
    """Return the function that converts a section's sentences to finding tuples. ``options``: an ``EngineOptions``."""
    from cxr.language.reports import rules
    from cxr.language.reports.llm.join import Joiner
    from cxr.language.reports.rules import lexicon
    from cxr.llm.replies import texts_key

    line_by_text = {line["text"]: line for line in read_lines(options.files["structured"])}
    joiner = Joiner(
        places={
            (line["location"], line["entity"]): (line["category"], line["labels"])
            for line in read_lines(options.files["mapping"])
            if line["problem"] is None
        },
        lexicon=lexicon.load_lexicon(),
        rules=rules.load(options),
        unsided_effusion=options.effusion_without_side == "both_bases",
    )

    def structure(sentences: list[str]) -> list[dict]:
        line = line_by_text.get(texts_key(sentences))
        if line is None:
            raise UserError(
                f"{options.files['structured']} has no answer for a report of this shard, because the report changed: "
                "rerun with --forcerun reports_structured"
            )
        if line["findings"] is None:
            raise Quarantined(line["problem"])
        return joiner.tuples(line["findings"], sentences)

    return structure
