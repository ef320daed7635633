"""The stage radvlm_conversations: writes standard and grounded conversations about each image with enough facts.

A source has two parts, train (with validate) and test, whose language models may differ. A job writes each part, and
another job joins them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.conservation import ALL, counted_rows
from cxr.base.jobs import log
from cxr.base.seeds import stable_hash
from cxr.base.tables import EXCLUDED, read_lines, read_table, write_excluded, write_lines, write_rows, write_table
from cxr.radvlm.conversations.engine import GROUNDED, STANDARD, ConversationOptions, Engine, Fault, Request, load_engine
from cxr.radvlm.conversations.facts import ID_COLUMNS, ImageFacts, gather_facts, index_masks
from cxr.radvlm.statements import read_digests, split_batches

RESOURCE_FILES = ("radvlm/statements.yaml", "radvlm/labels.yaml", "lexicon")
STAGE = "radvlm_conversations"
PARTS = {"train": ("train", "validate"), "test": ("test",)}  # {part of a source: its splits}
BATCH_SIZE = 5000  # number of requests that an engine gets at once, which bounds the memory
ASKED, KEPT = "asked", "kept"
OUTCOMES: Columns = {
    "engine": Column(pl.String, "Engine, or model and revision, that made the conversations."),
    "kind": Column(pl.String, "standard or grounded."),
    "split": Column(pl.String, "train, validate or test."),
    "outcome": Column(pl.String, "asked, kept, or the reason why conversations were excluded."),
    "conversations": Column(pl.Int64, "Number of conversations. The outcome asked is the sum of all other outcomes."),
}


def run_part(
    *, part: str, options: ConversationOptions, execution: Mapping, attrs: Mapping, replies: Sequence[str] = (), **files
) -> None:
    """Write the conversations of one part of a source. Raises UserError if the model is missing.

    ``files``: outputs of :func:`write_part` and inputs of :func:`read_requests`; ``replies``: files of the model's
    replies, if another job has asked the model; ``attrs``: {"code_digest": digest of the project's code}.
    """
    code = str(attrs.get("code_digest", ""))
    outputs = {name: files.pop(name) for name in ("lines", "excluded", "outcomes")}
    # the model's answers are kept, so that an interrupted job can resume
    answers = str(Path(outputs["lines"]).parent / "answers" / part)
    engine = load_engine(options, dict(execution) | {"replies": replies, "answers": answers, "code": code})
    requests = read_requests(**files, part=part, options=options)
    write_part(requests, engine, read_digests(code, statements=RESOURCE_FILES[0]), **outputs)


def write_part(
    requests: Iterable[Request], engine: Engine, digests: dict, *, lines: str, excluded: str, outcomes: str
) -> None:
    """Write the conversations that an engine makes for the requests. Raises AssertionError if a request is lost."""
    excluded_rows: list[dict] = []
    num_requested: Counter[tuple[str, str]] = Counter()
    num_by_group: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def conversation_lines() -> Iterator[dict]:
        for batch in split_batches(requests, BATCH_SIZE):
            num_requested.update((request.kind, request.facts.split) for request in batch)
            for request, result in zip(batch, engine.converse(batch), strict=True):
                facts, kind = request.facts, request.kind
                num_by_group[kind, facts.split][result.reason if isinstance(result, Fault) else KEPT] += 1
                if isinstance(result, Fault):
                    row = {"image_id": facts.image_id, "study_id": facts.study_id, "stage": STAGE}
                    detail = ": ".join(filter(None, (kind, result.detail)))
                    excluded_rows.append(row | {"reason": result.reason, "detail": detail})
                    continue
                name = f"c{stable_hash(facts.source, facts.image_id, kind, request.number):016x}"
                columns = {"conversation_id": name} | {key: getattr(facts, key) for key in ID_COLUMNS}
                columns |= {"grounded": request.grounded, "number": request.number}
                yield result.to_line(columns, engine.made_by, digests)

    write_lines(lines, conversation_lines(), checked=True)
    write_excluded(excluded, excluded_rows)
    rows = []
    for group, number in sorted(num_requested.items()):
        parts = {KEPT: num_by_group[group][KEPT]} | dict(sorted(num_by_group[group].items()))
        counts = counted_rows(STAGE, " ".join(group), number, parts)
        rows += [(engine.made_by, *group, ASKED if name == ALL else name, count) for _, name, count in counts]
    write_rows(outcomes, rows, OUTCOMES)
    totals = sum(num_by_group.values(), Counter())
    log.info("%s: %s", STAGE, ", ".join(f"{name} {number}" for name, number in sorted(totals.items())))


def run_source(**files) -> None:
    """Join the files of a source's parts. ``files``: {name: files of the parts, ``<name>_out``: joined file}. Raises
    AssertionError if a request is lost."""
    lines = [line for path in files["lines"] for line in read_lines(path)]
    lines.sort(key=lambda line: (line["image_id"], line["grounded"], line["number"]))
    write_lines(files["lines_out"], lines, checked=True)
    excluded_rows = pl.concat(map(read_table, files["excluded"]))
    write_table(files["excluded_out"], excluded_rows.sort(excluded_rows.columns), EXCLUDED)
    # a table without rows has no column types
    outcome_table = pl.concat([read_table(path).cast(schema(OUTCOMES)) for path in files["outcomes"]])
    num_requested = int(outcome_table.filter(outcome=ASKED)["conversations"].sum())
    counted_rows(STAGE, "conversations", num_requested, {KEPT: len(lines)} | Counter(excluded_rows["reason"]))
    write_table(files["outcomes_out"], outcome_table, OUTCOMES)


def read_requests(*, part: str, options: ConversationOptions, **files) -> Iterator[Request]:
    """Yield the requests of :func:`select_requests` for the part ``train`` or ``test`` of a source.

    ``files``: the source's ``images``, ``phrases``, ``facts`` and ``texts`` (if it annotates images of another source,
    the last two include that source's files); ``pairs``: ILS questions, which name masks; ``elsewhere``: phrases of
    other sources about images of this source, which get no standard conversation here but grounded ones there.
    """
    image_ids_elsewhere = {line["image_id"] for path in files["elsewhere"] for line in read_lines(path)}
    image_table = read_table(files["images"]).filter(pl.col("split").is_in(PARTS[part]))
    fact_table = pl.concat(map(read_table, files["facts"]))
    text_lines = (line for path in files["texts"] for line in read_lines(path))
    masks = index_masks(pair for path in files["pairs"] for pair in read_lines(path))
    image_facts = gather_facts(image_table, fact_table, text_lines, read_lines(files["phrases"]), masks)
    return select_requests(image_facts, image_ids_elsewhere, options)


def select_requests(
    images: Iterable[ImageFacts], elsewhere: set[str], options: ConversationOptions
) -> Iterator[Request]:
    """Yield requests for grounded conversations about images with phrases, and for standard conversations. Images in
    ``elsewhere`` (image ids) get no standard conversation, because another source has conversations about them. In
    train, a hash selects at most ``options.most`` images for standard conversations."""
    all_facts = list(images)
    standard = [facts for facts in all_facts if facts.image_id not in elsewhere] if STANDARD in options.kinds else []
    train = [facts for facts in standard if facts.split == "train"]
    ranks = {facts.image_id: stable_hash(options.seed, STAGE, facts.source, facts.image_id) for facts in train}
    surplus_ids = sorted(ranks, key=lambda image_id: (ranks[image_id], image_id))[options.most :]
    standard_ids = {facts.image_id for facts in standard}.difference(surplus_ids)
    for facts in all_facts:
        for number in range(options.per_image):
            if facts.image_id in standard_ids:
                yield Request(facts, grounded=False, number=number)
            if GROUNDED in options.kinds and facts.phrases:
                yield Request(facts, grounded=True, number=number)
