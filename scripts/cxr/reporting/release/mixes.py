"""Package an instruction mix of RadVLM: samples as Parquet, images, a dataset card, a datasheet and checksums.

The setting ``withhold`` works as in :mod:`cxr.reporting.release.withheld`. If it names ``report_text``, tasks whose
turns quote a report or were made from its text are excluded. If it names ``ids``, every identifier becomes a keyed
digest, and lines are sorted by digest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import yaml

from cxr.base.atomic import atomic_folder
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
from cxr.reporting.release.withheld import Withheld, read_groups
from cxr.vlm.samples import ImageStore, parse_sample

LINES = {
    **dict.fromkeys(("sample_id", "task", "source", "subject_id", "study_id", "image_id"), pl.String),
    "pass": pl.Int64, "asked": pl.String, "questions": TEXT_LIST, "answers": TEXT_LIST, "box_names": TEXT_LIST,
    "boxes": pl.List(pl.List(pl.Float64)), "labels": TEXT_LIST, "mask_ids": TEXT_LIST, "facts": TEXT_LIST,
    "engine": pl.String,
}  # fmt: skip
"""Columns of the table of lines. ``boxes`` are x1, y1, x2, y2 as fractions of the image. ``box_names`` has, for each
box, the name by which answers refer to it."""
IMAGES = {**dict.fromkeys(("source", "image_id", "study_id", "subject_id"), pl.String), "image": IMAGE_TYPE}
ID_FIELDS = {"sample_id": "sample_id", "subject_id": "subject_id", "study_id": "study_id", "image_id": "image_id",
             "mask_ids": "mask_id", "facts": "fact_id"}  # fmt: skip
"""{column with identifiers: their ``field`` in :meth:`Withheld.publish_id`}."""
IMAGE_FIELDS = ("sample_id", "task", "source", "image_id", "study_id", "subject_id")
"""Fields of a line that are kept in memory, to find and publish its image."""


def run(
    *, lines: Sequence[str], frames: Sequence[str], salt: str | Sequence[str], package: str, options: PackageSettings,
    mix: str, terms: Mapping[str, str], folders: Mapping[str, str],
) -> None:  # fmt: skip
    """Write the package of a mix into the folder ``package``, which appears only when complete.

    ``lines`` has the samples of the mix, one file per split. ``frames`` are the shards of all sources, which are read
    only if pixels are published. ``mix`` is the mix's name. ``terms`` maps each source to a key of TERMS (terms of
    use), and ``folders`` maps it to the folder of its frames. Raises UserError if ``salt``, the file with the secret
    key for withheld ids, is unusable.
    """
    withheld = Withheld(options.withhold, salt)
    hidden_tasks = TEXT_TASKS if withheld.report_text else ()
    counts: Counter = Counter()
    with atomic_folder(package) as folder:
        for path in lines:
            split = Path(path).stem
            of_split = Counter((line["task"], line["source"], split) for line in read_lines(path))
            counts.update(of_split)
            num_published = sum(number for (task, *_), number in of_split.items() if task not in hidden_tasks)
            part = PartWriter(folder / "data", split, LINES, num_published, parquet.PAIRS_PER_FILE)
            line_by_image: dict[tuple, Mapping] = {}
            groups = read_groups(path, "sample_id", withheld.publish_id if withheld.ids else None)
            for line in (line for _, group in groups for line in group if line["task"] not in hidden_tasks):
                fields = {name: line[name] for name in IMAGE_FIELDS}
                line_by_image.setdefault((line["source"], line["image_id"]), fields)
                part.add(_publish_line(line, withheld))
            part.flush()
            if not withheld.pixels:
                _write_images(folder, split, line_by_image.values(), frames, withheld, folders)
        published = Counter({key: number for key, number in counts.items() if key[0] not in hidden_tasks})
        write_text(folder / "README.md", card_text(folder, published.total(), mix, options))
        write_text(folder / "DATASHEET.md", datasheet_text(counts, published, mix, terms, options))
        write_sums(folder, {})


def _publish_line(line: Mapping, withheld: Withheld) -> dict:
    boxes = [(name, box) for name, slot_boxes in line["boxes"].items() for box in slot_boxes]
    row = {name: line[name] for name in LINES if name in line} | {
        "questions": [turn["question"] for turn in line["turns"]],
        "answers": [turn["answer"] for turn in line["turns"]],
        "box_names": [name for name, _ in boxes], "boxes": [list(box) for _, box in boxes],
    }  # fmt: skip
    for column, field in ID_FIELDS.items():
        ids = row[column]
        is_list = isinstance(ids, list)
        row[column] = [withheld.publish_id(field, name) for name in ids] if is_list else withheld.publish_id(field, ids)
    return row


def _write_images(
    folder: Path, split: str, lines: Iterable[Mapping], frames: Sequence[str], withheld: Withheld,
    folders: Mapping[str, str],
) -> None:  # fmt: skip
    """Write the frame of each image of a split. ``lines`` has one line per image."""
    rows = [
        {name: withheld.publish_id(name, line[name]) for name in ID_FIELDS if name in IMAGES} | {"line": line}
        for line in lines
    ]
    part = PartWriter(folder / "images", split, IMAGES, len(rows), parquet.IMAGES_PER_FILE)
    with ExitStack() as stack:
        stores: dict[str, ImageStore] = {}
        for row in sorted(rows, key=lambda row: (row["line"]["source"], row["image_id"])):
            source = row["line"]["source"]
            if source not in stores:
                frame_paths = [path for path in frames if Path(path).parent == Path(folders[source])]
                stores[source] = stack.enter_context(ImageStore(frame_paths))
            grey = stores[source].get(parse_sample(row["line"] | {"turns": []}))[..., 0]
            part.add(row | {"source": source, "image": image_cell(encode_png(grey))})
        part.flush()


def card_text(folder: Path, number: int, mix: str, options: PackageSettings) -> str:
    """Return README.md, with a header for Hugging Face's ``datasets`` and a text. ``number`` is the number of lines."""
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")]
    configs = describe_configs({"lines": "data", "images": "images"}, files, "lines")
    head = {"configs": [config for config in configs if config["data_files"]]}
    if len(head["configs"]) > 1:
        head["dataset_info"] = [{"config_name": "images", "features": card_features(IMAGES)}]
    return fill_template(
        "mix_card",
        **_about(mix, options),
        head=yaml.safe_dump(head, sort_keys=False),
        number=number,
        cite=options.cite or f"{options.name} {options.version}",
        withheld="; ".join(_describe_withheld(options)) or NOTHING_WITHHELD,
    )


def _about(mix: str, options: PackageSettings) -> dict[str, str]:
    return {"mix": mix} | {name: getattr(options, name) for name in ("name", "version", "licence")}


def _describe_withheld(options: PackageSettings) -> list[str]:
    texts = TEXTS["withheld_of_mix"]
    return [texts[kind].format(tasks=", ".join(TEXT_TASKS)) for kind in options.withhold]


def datasheet_text(
    counts: Counter, published: Counter, mix: str, terms: Mapping[str, str], options: PackageSettings
) -> str:
    """Return DATASHEET.md. ``counts`` has the number of all lines by (task, source, split), ``published`` the number of
    lines in the package."""
    rows = [[*key, number, published[key], number - published[key]] for key, number in sorted(counts.items())]
    sources = sorted({source for _, source, _ in counts})
    return fill_template(
        "mix_datasheet",
        **_about(mix, options),
        creator=options.creator or "not stated",
        date=options.date,
        counts=markdown_table(["task", "source", "split", "lines", "published", "withheld"], rows),
        withheld=markdown_list(_describe_withheld(options)),
        num_withheld=counts.total() - published.total(),
        num_lines=counts.total(),
        terms=markdown_list([f"`{source}`: {TERMS[terms[source]]}" for source in sources]),
    )
