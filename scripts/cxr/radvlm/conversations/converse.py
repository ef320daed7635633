"""The stage radvlm_conversations: standard and grounded conversations for each image with enough facts.

One job handles one part of a source, ``train`` (with validate) or ``test``, whose models may differ; another job joins
the parts.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.conservation import ALL, counted_rows
from cxr.base.jobs import log
from cxr.base.paths import RESOURCES
from cxr.base.seeds import stable_hash
from cxr.base.tables import EXCLUDED, read_lines, read_table, write_excluded, write_lines, write_table
from cxr.language.reports.rules import lexicon
from cxr.radvlm.conversations.engine import ConversationOptions, ConversationRequest, Engine, load_engine
from cxr.radvlm.conversations.facts import ImageFacts, SourceTables, gather_facts, index_masks
from cxr.radvlm.conversations.record import GROUNDED, STANDARD, line_of

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
    images: str,
    facts: Sequence[str],
    texts: Sequence[str],
    phrases: str,
    elsewhere: Sequence[str],
    pairs: Sequence[str],
    lines: str,
    excluded: str,
    outcomes: str,
    part: str,
    options: ConversationOptions,
    execution: Mapping,
    attrs: Mapping,
    replies: Sequence[str] = (),
) -> None:
    """Write the conversations of one part of a source.

    ``images`` to ``pairs``: as in :func:`read_requests`; ``replies``: of a model that ran in another job; empty if the
    engine runs in this job. Raises UserError if the model cannot be reached.
    """
    requests = read_requests(
        images=images, facts=facts, texts=texts, phrases=phrases, elsewhere=elsewhere, pairs=pairs, part=part,
        options=options,
    )  # fmt: skip
    code = str(attrs.get("code_digest", ""))
    # the model's answers are kept, so that an interrupted job can resume
    engine_execution = dict(execution) | {
        "replies": replies,
        "answers": str(Path(lines).parent / "answers" / part),
        "code": code,
    }
    work = _ConversationWriter(load_engine(options, engine_execution), options, _digests(code))
    write_lines(lines, work.lines(requests), checked=True)
    write_excluded(excluded, sorted(work.excluded, key=lambda row: (row["image_id"], row["detail"])))
    write_table(outcomes, work.table(), OUTCOMES)
    totals = work.table().group_by("outcome").agg(pl.col("conversations").sum()).sort("outcome")
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
    order = sorted(conversation_lines, key=lambda line: (line["image_id"], line["grounded"], line["number"]))
    write_lines(lines_out, order, checked=True)
    excluded_rows = pl.concat([read_table(path) for path in excluded])
    write_table(excluded_out, excluded_rows.sort(excluded_rows.columns), EXCLUDED)
    # a table without rows tells no types
    outcome_table = pl.concat([read_table(path).cast(schema(OUTCOMES)) for path in outcomes])
    num_requested = int(outcome_table.filter(outcome=ASKED)["conversations"].sum())
    counted_rows(STAGE, "conversations", num_requested, {KEPT: len(order)} | Counter(sorted(excluded_rows["reason"])))
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
        read_table(images),
        pl.concat([read_table(path) for path in facts]),
        [line for path in texts for line in read_lines(path)],
        list(read_lines(phrases)),
        index_masks(pair for path in pairs for pair in read_lines(path)),
    )
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

    def __init__(self, engine: Engine, options: ConversationOptions, digests: dict):
        self.engine, self.options, self.digests = engine, options, digests
        self.excluded: list[dict] = []
        self.num_requested: Counter[tuple[str, str]] = Counter()
        self.num_kept: Counter[tuple[str, str]] = Counter()
        self.num_excluded: Counter[tuple[str, str, str]] = Counter()

    def lines(self, requests: Iterable[ConversationRequest]) -> Iterator[dict]:
        """Yield one line per accepted conversation."""
        for batch in split_batches(requests):
            self.num_requested.update((conversation_kind(request), request.facts.split) for request in batch)
            for request, outcome in zip(batch, self.engine.converse(batch), strict=True):
                kind = conversation_kind(request)
                if outcome.conversation is None:
                    self._leave_out(request, kind, outcome.reason, outcome.detail)
                    continue
                name = f"c{stable_hash(request.facts.source, request.facts.image_id, kind, request.number):016x}"
                columns = {"conversation_id": name} | request.facts.id_columns()
                columns |= {"grounded": request.grounded, "number": request.number}
                self.num_kept[kind, request.facts.split] += 1
                yield line_of(columns, outcome.conversation, {"engine": self.engine.made_by, "digests": self.digests})

    def _leave_out(self, request: ConversationRequest, kind: str, reason: str, detail: str) -> None:
        full_detail = ": ".join(filter(None, (kind, detail)))
        row = {"image_id": request.facts.image_id, "study_id": request.facts.study_id, "stage": STAGE}
        self.excluded.append(row | {"reason": reason, "detail": full_detail})
        self.num_excluded[kind, request.facts.split, reason] += 1

    def table(self) -> pl.DataFrame:
        """Return the table of outcomes. Raises AssertionError if they do not add up to the requests."""
        rows = []
        for group in sorted({*self.num_requested, *self.num_kept, *(key[:2] for key in self.num_excluded)}):
            num_by_reason = {
                reason: number
                for (*kind_and_split, reason), number in sorted(self.num_excluded.items())
                if tuple(kind_and_split) == group
            }
            parts = {KEPT: self.num_kept[group]} | num_by_reason
            counts = counted_rows(STAGE, " ".join(group), self.num_requested[group], parts)
            rows += [
                (self.engine.made_by, *group, ASKED if name == ALL else name, number) for _, name, number in counts
            ]
        return pl.DataFrame(rows, schema=schema(OUTCOMES), orient="row")


def conversation_kind(request: ConversationRequest) -> str:
    """Return the kind of a requested conversation."""
    return GROUNDED if request.grounded else STANDARD


def split_batches(requests: Iterable[ConversationRequest]) -> Iterator[list[ConversationRequest]]:
    """Yield what is asked for, ``AT_ONCE`` at a time."""
    remaining = iter(requests)
    while batch := list(islice(remaining, BATCH_SIZE)):
        yield batch


def _digests(code: str) -> dict[str, str]:
    words = (Path(RESOURCES) / RESOURCE_FILES[0]).read_bytes()
    lexicon_digest = lexicon.digest_lexicon(Path(RESOURCES) / RESOURCE_FILES[2])
    return {"code": code, "statements": hashlib.blake2b(words, digest_size=8).hexdigest(), "lexicon": lexicon_digest}
