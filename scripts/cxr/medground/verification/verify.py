"""Verify the queries of one shard by form, text and judge. Each rejected query gets a row with its reason."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import cv2
import numpy as np

from cxr.base.columns import read_columns
from cxr.base.hdf5 import Shard
from cxr.base.jobs import progress
from cxr.base.tables import read_lines, read_tables, write_lines, write_rows, write_table
from cxr.base.vocabulary import ORGAN_LABELS
from cxr.geometry.boxes import CORNERS
from cxr.medground.logic.decide import Decider
from cxr.medground.logic.facts import Facts, group_by_image, read_images, read_regions
from cxr.medground.logic.scene import build_scene
from cxr.medground.stage_settings import VerificationSettings
from cxr.medground.verification import judge
from cxr.medground.verification.anatomy import Anatomy
from cxr.medground.verification.text_rules import allowed_words, check_text, find_form_fault

STAGES = ("I", "II", "III")
RESOURCE_FILES = ("columns/medground_verification.toml",)
REJECTED = read_columns("medground_verification", "rejected")
PASSED = read_columns("medground_verification", "passed")
GROUPED = read_columns("medground_verification", "grouped")
"""Columns of the table of pass rates by kind of answer and by family of attributes."""


def verify_line(
    line: Mapping, rows: list[dict], image_judge: judge.ImageJudge, facts: Facts, options: VerificationSettings,
    is_statement: bool = False, description: str = "", answers: judge.Answers | None = None,
) -> tuple[tuple[str, str, str] | None, dict]:  # fmt: skip
    """Return (fault, checks) for the line of a query. The fault is (stage, reason, detail), or None if the query is
    accepted, as an image's description used as a query (``is_statement``) always is. ``checks`` has its claims, its
    judgement and a description's faults. ``rows``: the image's regions. ``answers``: the judge model's answers."""
    wrong = ("I", *fault) if (fault := find_form_fault(line, rows)) else None
    if wrong and not is_statement:
        return wrong, {}
    allowed = allowed_words(image_judge.decider, facts.allow, description)
    fault, claims = check_text(line["query"], line["regions"], image_judge.decider, allowed)
    wrong = wrong or (("II", *fault) if fault else None)
    if wrong and not is_statement:
        return wrong, {}
    engine, judgement = "none" if is_statement else options.judge, judge.Judgement("not_run")
    if engine == "vllm":
        judgement = judge.judge_from_answers(line["query_id"], line["regions"], answers or {})
    elif engine == "rules":
        judgement = judge.judge_query(image_judge, line["regions"], claims)
    if judgement.verdict == "rejected":
        return ("III", judgement.reason, judgement.detail), {}
    if judgement.verdict == "unjudged" and options.unjudged == "drop":
        return ("III", "unjudged", ""), {}
    checks = {"read": sorted(claims.atoms), "ordinal": claims.query.ordinal, "unread": claims.unread, "judge": engine}
    judged = {"verdict": judgement.verdict, "observed": list(judgement.observed), "noted": list(wrong or ())}
    return None, checks | judged


def read_anatomy(shard: Shard, facts: Facts, image: Mapping) -> Anatomy | None:
    """Return the ILS results for a radiograph, or None if there are none. ``image``: its row in the table of images."""
    if image["anatomy"] != "found":
        return None
    organs = shard.get("organs", image["image_id"]) if "organs" in facts.fields else ()
    return Anatomy(
        dict(zip(facts.zones, shard.get("zones", image["image_id"]), strict=True)),
        dict(zip(ORGAN_LABELS, organs, strict=False)),
        shard.get("anomaly", image["image_id"]) if image["anomaly"] else None,
        frozenset(name for name, words in facts.classes.items() if words.get("opaque", True)),
    )


def run_shard(
    *, sources: str, images: str, regions: str, queries: str, output: str, rejected: str,
    options: VerificationSettings, statements: bool = False, confirm: list[str] | None = None,
    select: list[str] | None = None,
) -> None:  # fmt: skip
    """Write the accepted and the rejected queries of one shard. Raises AssertionError if a query is neither.
    ``statements``: whether the queries are images' descriptions. ``confirm``, ``select``: [file of the language model's
    answers to this task], if it was asked."""
    cv2.setNumThreads(1)
    paths_by_way = {way: paths[0] for way, paths in (("confirm", confirm), ("select", select)) if paths}
    answers = {way: {line["query_id"]: line for line in read_lines(path)} for way, path in paths_by_way.items()}
    by_image, lines, row_by_image = read_regions(regions), group_by_image(read_lines(queries)), read_images(images)
    accepted_lines, rejected_rows = [], []
    with Shard(sources) as shard:
        facts = Facts.from_shard(shard)
        for image_id in progress(sorted(lines), len(lines), "verification"):
            picture, image, rows = shard.get("picture", image_id), row_by_image[image_id], by_image[image_id]
            decider, regions_by_text = Decider(build_scene(image, rows, facts, picture.shape[0])), {}
            boxes, film = [[row[name] for name in CORNERS] for row in rows], read_anatomy(shard, facts, image)
            plane = judge.measured_plane(picture, image["domain"], image["extent"])
            image_judge = judge.ImageJudge(plane, boxes, decider, film=film, extent=image["extent"])
            details = options, statements, image["description"], answers
            for line in lines[image_id]:
                fault, checks = verify_line(line, rows, image_judge, facts, *details)
                if fault is None and regions_by_text.setdefault(line["query"], line["regions"]) != line["regions"]:
                    fault = ("I", "repeated", "")
                if fault is None:
                    accepted_lines.append(line | {"checks": checks})
                else:
                    names = (line.get(name, "") for name in ("query_id", "source", "split", "image_id"))
                    rejected_rows.append((*names, *fault))
    num_queries = sum(map(len, lines.values()))
    if num_queries != len(accepted_lines) + len(rejected_rows):
        raise AssertionError(f"of {num_queries} queries, {len(accepted_lines)} passed and {len(rejected_rows)} failed")
    write_lines(output, accepted_lines)
    write_rows(rejected, rejected_rows, REJECTED)


def run_rates(
    *, queries: list[str], accepted: list[str], parts: list[str], rates: str, grouped: str, rejected: str
) -> None:
    """Write pass rates of all sources, pass rates by kind of answer and by family of attributes, and a table of all
    rejected queries. ``parts``: tables of rejected queries, one per shard."""
    rejected_table = read_tables(parts).sort("source", "image_id", "query_id")
    write_table(rejected, rejected_table, REJECTED)
    accepted_lines = [line for path in accepted for line in read_lines(path)]
    groups: dict[tuple[str, str], tuple[list, list]] = defaultdict(lambda: ([], []))
    for at, rows in enumerate((accepted_lines, rejected_table.to_dicts())):
        for row in rows:
            for group in ((row["source"], row["split"]), (row["source"], "all"), ("total", "all")):
                groups[group][at].append(row)
    write_rows(rates, (row for group in sorted(groups) for row in _rate_rows(group, *groups[group])), PASSED)
    candidate_lines = (line for path in queries for line in read_lines(path))
    write_rows(grouped, count_by_group(candidate_lines, accepted_lines, rejected_table.to_dicts()), GROUPED)


def count_by_group(
    candidate_lines: Iterable[Mapping], accepted_lines: Iterable[Mapping], rejected_rows: Iterable[Mapping]
) -> list[dict]:
    """Return the rows of :data:`GROUPED`: numbers of queries before and after each stage, by kind of answer (single,
    subset, all) and by family of attributes (size, position, …)."""
    ends = {(row["source"], row["query_id"]): STAGES.index(row["stage"]) for row in rejected_rows}
    verdicts = {(line["source"], line["query_id"]): line["checks"]["verdict"] for line in accepted_lines}
    counts_by_group: dict[tuple[str, str], np.ndarray] = defaultdict(lambda: np.zeros(2 + len(STAGES), np.int64))
    for line in candidate_lines:
        key = line["source"], line["query_id"]
        end, is_unjudged = ends.get(key, len(STAGES)), verdicts.get(key) == "unjudged"
        families = [("family", name) for name in line.get("families") or ["unknown"]]
        for group in [("kind", line["kind"] or "unknown"), *families]:
            counts_by_group[group] += [1, *(end > at for at in range(len(STAGES))), is_unjudged]
    order = sorted(counts_by_group, key=lambda group: (group[0] != "kind", group))
    return [dict(zip(GROUPED, (*group, *counts_by_group[group].tolist()), strict=True)) for group in order]


def _rate_rows(group: tuple[str, str], accepted_lines: list[dict], rejected_rows: list[dict]) -> Iterator[tuple]:
    total = before = len(accepted_lines) + len(rejected_rows)
    for stage in STAGES:
        reasons = Counter(row["reason"] for row in rejected_rows if row["stage"] == stage)
        accepted = before - reasons.total()
        verdicts = [line["checks"]["verdict"] if stage == "III" else "" for line in accepted_lines]
        pairs = zip(accepted_lines, verdicts, strict=True)
        undecided = sum(line["engine"] == "statements" or verdict in ("unjudged", "not_run") for line, verdict in pairs)
        noted = Counter(line["checks"]["noted"][1] for line in accepted_lines if line["checks"]["noted"][:1] == [stage])
        texts = (" ".join(f"{name}:{count}" for name, count in sorted(part.items())) for part in (reasons, noted))
        percentages = 100 * accepted / total, 100 * accepted / before if before else None
        yield *group, stage, total, accepted, *percentages, verdicts.count("unjudged"), accepted - undecided, *texts
        before = accepted
