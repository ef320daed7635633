"""The stage radvlm_conversations: standard and grounded conversations for each image with enough facts.

One job handles one part of a source, ``train`` (with validate) or ``test``, whose models may differ; another job joins
the parts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.conservation import ALL, counted_rows
from cxr.base.jobs import log
from cxr.base.seeds import stable_hash
from cxr.base.tables import EXCLUDED, read_lines, read_table, write_excluded, write_lines, write_table
from cxr.radvlm.conversations.engine import (
    GROUNDED,
    STANDARD,
    ConversationOptions,
    ConversationOutcome,
    ConversationRequest,
    Engine,
    line_of,
    load_engine,
)
from cxr.radvlm.conversations.facts import ImageFacts, SourceTables, gather_facts, index_masks
from cxr.radvlm.statements import read_digests, split_batches

RESOURCE_FILES = ("radvlm/statements.yaml", "radvlm/labels.yaml", "lexicon")
STAGE = "radvlm_conversations"
PARTS = {"train": ("train", "validate"), "test": ("test",)}
"""{part of a source: its splits}."""
BATCH_SIZE = 5000
"""Requests passed to an engine at once: one batch of a language model; bounds memory."""
ASKED, KEPT = "asked", "kept"
OUTCOMES: Columns = {
    "engine": Column(pl.String, "Engine, or model and revision, that made the conversations."),
    "kind": Column(pl.String, "standard or grounded."),
    "split": Column(pl.String, "train, validate or test."),
    "outcome": Column(pl.String, "asked, kept, or the reason for which one was not kept."),
    "conversations": Column(pl.Int64, "How many; asked is the sum of all others."),
}


def run_part(
    *,
    lines: str,
    excluded: str,
    outcomes: str,
    part: str,
    options: ConversationOptions,
    execution: Mapping,
    attrs: Mapping,
    replies: Sequence[str] = (),
    **tables,
) -> None:
    """Write the conversations of one part of a source.

    ``tables``: files of :func:`read_requests`; ``replies``: of a model that ran in another job; empty if the engine
    runs in this job. Raises UserError if the model cannot be reached.
    """
    code = str(attrs.get("code_digest", ""))
    # the model's answers are kept, so that an interrupted job can resume
    answers = str(Path(lines).parent / "answers" / part)
    engine = load_engine(options, dict(execution) | {"replies": replies, "answers": answers, "code": code})
    writer = _ConversationWriter(engine, read_digests(code, statements=RESOURCE_FILES[0]))
    write_lines(lines, writer.lines(read_requests(**tables, part=part, options=options)), checked=True)
    write_excluded(excluded, sorted(writer.excluded, key=lambda row: (row["image_id"], row["detail"])))
    table = writer.table()
    write_table(outcomes, table, OUTCOMES)
    totals = table.group_by("outcome").agg(pl.col("conversations").sum()).sort("outcome")
    log.info("%s: %s", STAGE, ", ".join(f"{name} {number}" for name, number in totals.iter_rows()))


def run_source(
    *,
    lines: Sequence[str],
    excluded: Sequence[str],
    outcomes: Sequence[str],
    lines_out: str,
    excluded_out: str,
    outcomes_out: str,
) -> None:
    """Join the parts of a source, sorted by image.

    Raises AssertionError if lines and exclusions do not add up to the requests.
    """
    conversation_lines = [line for path in lines for line in read_lines(path)]
    conversation_lines.sort(key=lambda line: (line["image_id"], line["grounded"], line["number"]))
    write_lines(lines_out, conversation_lines, checked=True)
    excluded_rows = pl.concat(map(read_table, excluded))
    write_table(excluded_out, excluded_rows.sort(excluded_rows.columns), EXCLUDED)
    # a table without rows tells no types
    outcome_table = pl.concat([read_table(path).cast(schema(OUTCOMES)) for path in outcomes])
    num_requested = int(outcome_table.filter(outcome=ASKED)["conversations"].sum())
    outcome_counts = {KEPT: len(conversation_lines)} | Counter(sorted(excluded_rows["reason"]))
    counted_rows(STAGE, "conversations", num_requested, outcome_counts)
    write_table(outcomes_out, outcome_table, OUTCOMES)


def read_requests(
    *,
    images: str,
    facts: Sequence[str],
    texts: Sequence[str],
    phrases: str,
    elsewhere: Sequence[str],
    pairs: Sequence[str],
    part: str,
    options: ConversationOptions,
) -> Iterator[ConversationRequest]:
    """Yield the requests of a part of a source (:func:`select_requests`).

    facts, texts: of the source and of the source whose images it uses; elsewhere: phrases of sources that use its
    images, whose conversations are made there; pairs: lines of the ILS dataset, for masks.
    """
    tables = SourceTables(
        read_table(images), pl.concat(map(read_table, facts)), [line for path in texts for line in read_lines(path)],
        list(read_lines(phrases)), index_masks(pair for path in pairs for pair in read_lines(path)),
    )  # fmt: skip
    image_ids_elsewhere = {line["image_id"] for path in elsewhere for line in read_lines(path)}
    return select_requests(gather_facts(tables, PARTS[part]), image_ids_elsewhere, options)


def select_requests(
    images: Iterable[ImageFacts], elsewhere: set[str], options: ConversationOptions
) -> Iterator[ConversationRequest]:
    """Yield the requested conversations, sorted by image.

    Images with phrases get a grounded conversation. Images not in ``elsewhere`` get a standard one, in train at most
    ``most`` of them, selected by stable hash.
    """
    all_facts = list(images)
    standard = [facts for facts in all_facts if facts.image_id not in elsewhere] if STANDARD in options.kinds else []
    rank = sorted(
        (stable_hash(options.seed, STAGE, facts.source, facts.image_id), facts.image_id)
        for facts in standard
        if facts.split == "train"
    )
    surplus_ids = {image_id for _, image_id in rank[options.most :]}
    standard_ids = {facts.image_id for facts in standard} - surplus_ids
    for facts in all_facts:
        for number in range(options.per_image):
            if facts.image_id in standard_ids:
                yield ConversationRequest(facts, grounded=False, number=number)
            if GROUNDED in options.kinds and facts.phrases:
                yield ConversationRequest(facts, grounded=True, number=number)


class _ConversationWriter:
    """Runs an engine on requests, yields lines, and counts outcomes."""

    def __init__(self, engine: Engine, digests: dict):
        self.engine, self.digests = engine, digests
        self.excluded: list[dict] = []
        self.num_requested: Counter[tuple[str, str]] = Counter()
        self.num_by_outcome: Counter[tuple[str, str, str]] = Counter()

    def lines(self, requests: Iterable[ConversationRequest]) -> Iterator[dict]:
        """Yield one line per accepted conversation."""
        for batch in split_batches(requests, BATCH_SIZE):
            self.num_requested.update((request.kind, request.facts.split) for request in batch)
            for request, outcome in zip(batch, self.engine.converse(batch), strict=True):
                if outcome.conversation is None:
                    self._exclude(request, outcome)
                    continue
                facts, kind = request.facts, request.kind
                name = f"c{stable_hash(facts.source, facts.image_id, kind, request.number):016x}"
                columns = {"conversation_id": name} | facts.id_columns()
                columns |= {"grounded": request.grounded, "number": request.number}
                self.num_by_outcome[kind, facts.split, KEPT] += 1
                yield line_of(columns, outcome.conversation, self.engine.made_by, self.digests)

    def _exclude(self, request: ConversationRequest, outcome: ConversationOutcome) -> None:
        facts, detail = request.facts, ": ".join(filter(None, (request.kind, outcome.detail)))
        row = {"image_id": facts.image_id, "study_id": facts.study_id, "stage": STAGE}
        self.excluded.append(row | {"reason": outcome.reason, "detail": detail})
        self.num_by_outcome[request.kind, facts.split, outcome.reason] += 1

    def table(self) -> pl.DataFrame:
        """Return the table of outcomes. Raises AssertionError if they do not add up to the requests."""
        rows = []
        for group, number in sorted(self.num_requested.items()):
            parts = {KEPT: self.num_by_outcome[*group, KEPT]} | {
                outcome: count
                for (*kind_and_split, outcome), count in sorted(self.num_by_outcome.items())
                if tuple(kind_and_split) == group and outcome != KEPT
            }
            counts = counted_rows(STAGE, " ".join(group), number, parts)
            rows += [(self.engine.made_by, *group, ASKED if name == ALL else name, count) for _, name, count in counts]
        return pl.DataFrame(rows, schema=schema(OUTCOMES), orient="row")
