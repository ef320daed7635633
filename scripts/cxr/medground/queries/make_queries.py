"""Make the queries of one shard by rules, from a language model's answers (``vllm``), or from a user's table."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from cxr.base.columns import read_columns
from cxr.base.hdf5 import Shard
from cxr.base.jobs import progress
from cxr.base.seeds import make_rng
from cxr.base.tables import read_lines, write_lines, write_rows
from cxr.geometry.affine import boxes_to_original
from cxr.geometry.boxes import CORNERS
from cxr.medground.logic.decide import Decider, Outlines, Query
from cxr.medground.logic.facts import GRID_CORNERS, Facts, count_queries, find_answer, read_images, read_regions
from cxr.medground.logic.scene import build_scene, region_sides
from cxr.medground.logic.text import description_faults, parse_statement
from cxr.medground.queries import written_queries
from cxr.medground.queries.forms import FormSearch, target_kind
from cxr.medground.queries.sampling import QuerySampler, SampledQuery
from cxr.medground.stage_settings import QueriesSettings

RESOURCE_FILES = ("columns/medground_queries.toml",)
UNASKED = read_columns("medground_queries", "unasked")
Made = tuple[list[dict], list[dict]]
"""(lines of an image's queries, rows of :data:`UNASKED` for requested queries that could not be made)."""


def query_id(image_id: str, query: str, regions: Iterable[int]) -> str:
    """Return the id of a query, a digest of its image, text and answer ``regions``."""
    key = "\x1f".join([image_id, query, *map(str, regions)])
    return "q" + hashlib.blake2b(key.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ImageQueries:
    """Maker of the queries of one image. ``image``: its row in the table of images. ``rows``: the rows of its regions.
    ``side``: side of its frame, px. ``engine`` and ``source`` are copied to the queries' lines."""

    image: Mapping
    rows: list[dict]
    facts: Facts
    side: int
    engine: str
    source: str

    @cached_property
    def decider(self) -> Decider:
        """Logic that finds the answer of any query about the image."""
        return Decider(build_scene(self.image, self.rows, self.facts, self.side))

    @property
    def num_candidates(self) -> int:
        """The number of regions that may be an answer."""
        return sum(row["candidate"] for row in self.rows)

    def sample(self, shifted_rows: list[dict], options: QueriesSettings, seed: int) -> Made:
        """Return queries that rules sample and word. ``shifted_rows``: rows of regions after shifts of outlines."""
        outlines = Outlines(self.image, shifted_rows, self.facts, self.side)
        key = seed, self.source, self.image["image_id"]
        forms = FormSearch(self.decider, options.families, make_rng(*key, "forms")).run()
        sampler, lines, unasked = QuerySampler(outlines, forms, options, key), [], []
        for number in range(count_queries(self.num_candidates, options.per_image)):
            query = sampler.draw(number)
            if query is not None and query.text not in {line["query"] for line in lines}:
                lines.append(self._sampled_line(query))
            else:
                is_fragile = query is None and sampler.withheld
                reason = "fragile" if is_fragile else "budget" if forms.spent else "undecidable"
                unasked.append(self._unasked_row(number, reason))
        return lines, unasked

    def write(self, requests: Iterable[written_queries.Request], is_described: bool = False) -> Made:
        """Return lines of the queries that a user or a model wrote. ``is_described``: whether the model saw the image's
        description."""
        lines, missing = [], []
        for number, query, reason in requests:
            if query is None:
                missing.append(self._unasked_row(number, reason))
            else:
                lines.append(self._written_line(query) | {"description_used": is_described})
        return lines, sorted(missing, key=lambda row: row["number"])

    def state(self) -> Made:
        """Return the image's description as a query whose answer is all regions. There is no query unless the
        description states the correct sides and number, and all regions may be answers."""
        text, reason = self.image["description"], ""
        statement = parse_statement(text, self.image["radiological"])
        if statement is None:
            reason = "not_given"
        elif faults := description_faults(statement, region_sides(self.image, self.rows, self.side)):
            reason = f"{faults[0]}_disagrees"
        elif self.num_candidates < len(self.rows):
            reason = "undecidable"  # "all" would include a distractor
        query = None if reason else written_queries.WrittenQuery(text, tuple(range(len(self.rows))))
        lines, missing = self.write([(0, query, reason)], is_described=True)
        return [line | {"engine": "statements"} for line in lines], missing

    def _unasked_row(self, number: int, reason: str) -> dict:
        return {"image_id": self.image["image_id"], "split": self.image["split"], "number": number, "reason": reason}

    def _written_line(self, query: written_queries.WrittenQuery) -> dict:
        regions, boxes = written_queries.match_regions(query, self.rows)
        regions_exist = bool(regions) and set(regions) <= set(range(len(self.rows)))
        kind = target_kind(tuple(sorted(set(regions))), self.decider) or "all" if regions_exist else ""
        name = query_id(self.image["image_id"], query.text, [*regions, *chain(*boxes)])
        line = self._line(name, query.text, kind, list(regions) if regions_exist else [])
        return line | {"regions": list(regions), "boxes": boxes}

    def _sampled_line(self, query: SampledQuery) -> dict:
        class_atoms = tuple(atom for atom in query.query.atoms if atom.startswith("class:"))[:1]
        is_by_class = bool(class_atoms) and self.decider.answer(Query(class_atoms)).selected == query.target
        name = query_id(self.image["image_id"], query.text, query.target)
        line = self._line(name, query.text, query.kind, list(query.target)) | {"by_class": is_by_class}
        return line | {"families": sorted(query.query.families()), "logic": asdict(query.query)}

    def _line(self, name: str, text: str, kind: str, regions: list[int]) -> dict:
        image, region_rows = self.image, [self.rows[region] for region in regions]
        frame_boxes = np.array([[row[corner] for corner in CORNERS] for row in region_rows], np.float64)
        original_boxes = boxes_to_original(frame_boxes, np.reshape(image["to_original"], (2, 3))).tolist()
        boxes = [[row[corner] for corner in GRID_CORNERS] for row in region_rows]
        boxes_px = [[round(corner, 2) for corner in box] for box in original_boxes]
        line = {"query_id": name, "source": self.source}
        line |= {field: image[field] for field in ("image_id", "subject_id", "split", "domain")}
        line |= {"modality": self.facts.modality, "query": text, "kind": kind, "regions": regions, "boxes": boxes}
        line |= {"boxes_px": boxes_px, "candidates": self.num_candidates, "trivial": self.num_candidates == 1}
        line |= {"by_class": False, "families": [], "logic": None, "engine": self.engine}
        return line | {"description_used": False, "licence": image["licence"]}


def run_shard(
    *, sources: str, images: str, regions: str, shifted: str, output: str, unasked: str, options: QueriesSettings,
    source: str, seed: int, statements: bool = False, text_files: list[str] | None = None,
    model_answers: list[str] | None = None,
) -> None:  # fmt: skip
    """Write the queries of one shard to ``output``, and the requested queries that could not be made to ``unasked``.
    ``statements``: whether the images' descriptions are the queries. ``text_files``: [the user's file] for the engine
    ``table``. ``model_answers``: [file] for the engine ``vllm``. Raises UserError if a model's answer is missing."""
    queries_by_image = written_queries.read_written_queries(text_files[0]) if text_files else {}
    answers = {line["image_id"]: line for line in read_lines(model_answers[0])} if model_answers else {}
    rows_by_image, shifted_by_image, row_by_image = read_regions(regions), read_regions(shifted), read_images(images)
    lines, missing = [], []
    with Shard(sources) as shard:
        facts, side = Facts.from_shard(shard), shard.shape("picture")[0]
    for image_id in progress(sorted(rows_by_image), len(rows_by_image), "queries"):
        image = ImageQueries(row_by_image[image_id], rows_by_image[image_id], facts, side, options.engine, source)
        if statements:
            results = image.state()
        elif text_files:
            queries = queries_by_image.get(image_id, [])
            missing_numbers = range(len(queries), count_queries(image.num_candidates, options.per_image))
            requests = [(number, query, "") for number, query in enumerate(queries)]
            results = image.write([*requests, *((number, None, "not_given") for number in missing_numbers)])
        elif model_answers:
            answer = find_answer(answers, "image", image_id, "queries")
            results = image.write(written_queries.parse_answer(answer), is_described=answer["described"])
        else:
            results = image.sample(shifted_by_image[image_id], options, seed)
        lines += results[0]
        missing += results[1]
    write_lines(output, lines)
    write_rows(unasked, missing, UNASKED)
