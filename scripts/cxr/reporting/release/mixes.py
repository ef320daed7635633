"""Package an instruction mix of RadVLM: its lines as Parquet, the images, a card, a datasheet, checksums.

The same data are withheld as in other packages. With ``report_text``, tasks whose turns quote a report or were made
from its text are excluded; with ``ids``, every name derived from an identifier is a keyed digest, by which the lines
are sorted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import yaml

from cxr.base.atomic import atomic_folder
from cxr.base.secrets import keyed_digest, read_secret
from cxr.base.tables import read_lines
from cxr.radvlm.samples import TEXT_TASKS
from cxr.reporting.release import parquet
from cxr.reporting.release.package import write_sums, write_text
from cxr.reporting.release.parquet import IMAGE_TYPE, TEXT_LIST, PartWriter, card_features, encode_png, image_cell
from cxr.reporting.release.settings import PackageSettings
from cxr.reporting.release.texts import (
    NOTHING_WITHHELD,
    TERMS,
    TEXTS,
    describe_configs,
    fill_template,
    markdown_list,
    markdown_table,
)
from cxr.reporting.release.withheld import IDS, PIXELS, REPORT_TEXT, read_groups
from cxr.vlm.samples import ImageStore, parse_sample

LINES = {
    **dict.fromkeys(("sample_id", "task", "source", "subject_id", "study_id", "image_id"), pl.String),
    "pass": pl.Int64, "asked": pl.String, "questions": TEXT_LIST, "answers": TEXT_LIST, "box_names": TEXT_LIST,
    "boxes": pl.List(pl.List(pl.Float64)), "labels": TEXT_LIST, "mask_ids": TEXT_LIST, "facts": TEXT_LIST,
    "engine": pl.String,
}  # fmt: skip
"""Columns of the lines; ``box_names``: the slot of each of ``boxes``, fractions x1, y1, x2, y2 of the image."""
IMAGES = {**dict.fromkeys(("source", "image_id", "study_id", "subject_id"), pl.String), "image": IMAGE_TYPE}
NAMES = {"sample_id": "r", "subject_id": "p", "study_id": "s", "image_id": "i", "mask_ids": "m", "facts": "f"}
"""{column: first letter of the digest that replaces it}."""


class MixPublisher:
    """Convert lines to their published form. ``key``: secret key of the digests, empty if identifiers are published."""

    def __init__(self, withhold: Sequence[str], salt: str):
        self.texts = REPORT_TEXT not in withhold
        self.key = read_secret("release.salt", salt) if IDS in withhold else b""

    def publish_id(self, column: str, value: str) -> str:
        """Return an identifier or its digest; an empty identifier (of an empty mask) stays empty."""
        field = {"mask_ids": "mask_id", "facts": "fact_id"}.get(column, column)
        return keyed_digest(self.key, field, value, NAMES[column]) if self.key and value else value

    def publish_line(self, line: Mapping) -> dict:
        """Return a row of :data:`LINES`."""
        boxes = [(name, box) for name, slot_boxes in line["boxes"].items() for box in slot_boxes]
        row = {name: line[name] for name in LINES if name in line} | {
            "questions": [turn["question"] for turn in line["turns"]],
            "answers": [turn["answer"] for turn in line["turns"]],
            "box_names": [name for name, _ in boxes], "boxes": [list(box) for _, box in boxes],
        }  # fmt: skip
        for column in NAMES:
            ids = row[column]
            is_list = isinstance(ids, list)
            row[column] = [self.publish_id(column, value) for value in ids] if is_list else self.publish_id(column, ids)
        return row

    def read_published(self, path: str) -> Iterator[dict]:
        """Yield the published lines of a file, sorted by their digests if identifiers are withheld."""
        for _, lines in read_groups(path, "sample_id", self.publish_id if self.key else None):
            yield from (line for line in lines if self.is_published(line))

    def is_published(self, line: Mapping) -> bool:
        """Return whether a line is published."""
        return self.texts or line["task"] not in TEXT_TASKS


def run(
    *, lines: Sequence[str], frames: Sequence[str], salt: str | Sequence[str], package: str, options: PackageSettings,
    mix: str, terms: Mapping[str, str], folders: Mapping[str, str],
) -> None:  # fmt: skip
    """Write the package into the folder ``package``, which appears only when complete.

    ``lines``: one file per split; ``frames``: shards of all sources, read if pixels are published. The rows of one
    Parquet file and the ids of a split's images are in memory at a time. ``mix``: its name; ``terms``: {source: key of
    TERMS}; ``folders``: {source: folder of its frames}. Raises UserError.
    """
    publisher = MixPublisher(options.withhold, salt if isinstance(salt, str) else "")
    counts: dict[str, Counter] = {"all": Counter(), "published": Counter()}
    with atomic_folder(package) as folder:
        for path in lines:
            split = Path(path).stem
            for line in read_lines(path):
                counts["all"][line["task"], line["source"], split] += 1
            line_by_image = _write_lines(folder, split, path, publisher, counts["published"])
            if PIXELS not in options.withhold:
                _write_images(folder, split, line_by_image, frames, publisher, folders)
        write_text(folder / "README.md", card_text(folder, counts, mix, options))
        write_text(folder / "DATASHEET.md", datasheet_text(counts, mix, terms, options))
        write_sums(folder, {})


def _write_lines(folder: Path, split: str, path: str, publisher: MixPublisher, counts: Counter) -> dict[tuple, Mapping]:
    """Write the lines of a split; return {(source, image): one of its lines}."""
    total = sum(1 for line in read_lines(path) if publisher.is_published(line))
    part = PartWriter(folder / "data", split, LINES, total, parquet.PAIRS_PER_FILE)
    line_by_image: dict[tuple, Mapping] = {}
    for line in publisher.read_published(path):
        counts[line["task"], line["source"], split] += 1
        fields = {name: line[name] for name in ("sample_id", "task", "source", "image_id", "study_id", "subject_id")}
        line_by_image.setdefault((line["source"], line["image_id"]), fields)
        part.add(publisher.publish_line(line))
    part.flush()
    return line_by_image


def _write_images(
    folder: Path,
    split: str,
    line_by_image: Mapping[tuple, Mapping],
    frames: Sequence[str],
    publisher: MixPublisher,
    folders: Mapping[str, str],
) -> None:
    """Write the frame of each image of a split."""
    part = PartWriter(folder / "images", split, IMAGES, len(line_by_image), parquet.IMAGES_PER_FILE)
    with ExitStack() as stack:
        stores: dict[str, ImageStore] = {}
        rows = [({name: publisher.publish_id(name, line[name]) for name in NAMES if name in line}, line)
                for line in line_by_image.values()]  # fmt: skip
        for names, line in sorted(rows, key=lambda row: (row[1]["source"], row[0]["image_id"])):
            source = line["source"]
            if source not in stores:
                frame_paths = [path for path in frames if Path(path).parent == Path(folders[source])]
                stores[source] = stack.enter_context(ImageStore(frame_paths))
            grey = stores[source].get(parse_sample(line | {"turns": []}))[..., 0]
            part.add(names | {"source": source, "image": image_cell(encode_png(grey))})
        part.flush()


def card_text(folder: Path, counts: Mapping[str, Counter], mix: str, options: PackageSettings) -> str:
    """Return README.md: the header that Hugging Face's ``datasets`` reads, and the meaning of the columns."""
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")]
    configs = describe_configs({"lines": "data", "images": "images"}, files, "lines")
    configs = [config for config in configs if config["data_files"]]
    info = [{"config_name": "images", "features": card_features(IMAGES)}] if len(configs) > 1 else []
    head = {"configs": configs} | ({"dataset_info": info} if info else {})
    return fill_template(
        "mix_card",
        head=yaml.safe_dump(head, sort_keys=False),
        name=options.name,
        version=options.version,
        mix=mix,
        number=sum(counts["published"].values()),
        licence=options.licence,
        cite=options.cite or f"{options.name} {options.version}",
        withheld="; ".join(_describe_withheld(options)) or NOTHING_WITHHELD,
    )


def _describe_withheld(options: PackageSettings) -> list[str]:
    texts = TEXTS["withheld_of_mix"]
    return [texts[kind].format(tasks=", ".join(TEXT_TASKS)) for kind in options.withhold]


def datasheet_text(counts: Mapping[str, Counter], mix: str, terms: Mapping[str, str], options: PackageSettings) -> str:
    """Return DATASHEET.md: counts, what is withheld, the licence of every source, limits."""
    published = counts["published"]
    rows = [[*key, number, published[key], number - published[key]] for key, number in sorted(counts["all"].items())]
    num_lines = counts["all"].total()
    sources = sorted({source for _, source, _ in counts["all"]})
    return fill_template(
        "mix_datasheet",
        name=options.name,
        version=options.version,
        mix=mix,
        creator=options.creator or "not stated",
        date=options.date,
        licence=options.licence,
        counts=markdown_table(["task", "source", "split", "lines", "published", "withheld"], rows),
        withheld=markdown_list(_describe_withheld(options)),
        num_withheld=num_lines - published.total(),
        num_lines=num_lines,
        terms=markdown_list([f"`{source}`: {TERMS[terms[source]]}" for source in sources]),
    )
