"""Exports a mix for LLaVA's trainers: one JSON list per split, and the images."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import cv2

from cxr.base.atomic import atomic_folder
from cxr.base.tables import read_lines, read_table
from cxr.instructions.conversations import Conversation, to_sharegpt, write_entries
from cxr.instructions.record import Turn
from cxr.plotting.encoding import encode_image
from cxr.vlm.conventions import GRID, Convention, InputSize, find_convention
from cxr.vlm.samples import ImageStore, parse_sample

FILE_BY_SPLIT = {"train": "llava.json", "validate": "llava_validate.json", "test": "llava_test.json"}
"""{split: name of its file}."""
COPIED_FIELDS = ("task", "source", "split", "asked")  # fields of a line that are copied into the export
ImageKey = tuple[str, str]  # (source, image_id) of an image


def image_path(source: str, image_id: str) -> str:
    """Return the path of an image in the export. The id is quoted, so that the path stays inside the folder."""
    return f"images/{source}/{quote(image_id, safe=' ')}.png"


def run(
    *, lines: Sequence[str], frames: Sequence[str], images: Sequence[str], folder: str, convention: str, pictures: str,
    folders: Mapping[str, str],
) -> None:  # fmt: skip
    """Export a mix to ``folder``. ``convention``, ``pictures``: settings; ``folders``: {source: folder of frames}."""
    line_by_picture: dict[ImageKey, dict] = {}
    frame = pictures == "frame"
    image_tables = () if frame else map(read_table, images)
    rows = (row for table in image_tables for row in table.select("source", "image_id", "path").iter_rows())
    originals = {(source, image): path for source, image, path in rows}

    def picture(line: Mapping) -> str:
        key = line["source"], line["image_id"]
        if not frame:
            return originals[key]
        line_by_picture.setdefault(key, {name: line[name] for name in ("sample_id", "source", "image_id", "task")})
        return image_path(*key)

    with atomic_folder(folder) as temporary_dir:
        for path in lines:
            entries = to_entries(path, picture, find_convention(convention))
            write_entries(temporary_dir / FILE_BY_SPLIT[Path(path).stem], entries)
        write_images(temporary_dir, line_by_picture, frames, folders)


def to_entries(path: str | Path, picture: Callable[[Mapping], str], convention: Convention) -> Iterator[dict]:
    """Yield the LLaVA entry of each sample in the file ``path``. ``picture``: function from sample to image path."""
    image_size = InputSize(GRID, GRID)
    for line in read_lines(path):
        sample, more = parse_sample(line), {name: line[name] for name in COPIED_FIELDS}
        turns = [Turn(turn.question, sample.answer(at, convention, image_size)) for at, turn in enumerate(sample.turns)]
        yield to_sharegpt(Conversation(line["sample_id"], picture(line), turns, more=more))


def write_images(
    folder: Path, line_by_picture: Mapping[ImageKey, Mapping], frames: Sequence[str], folders: Mapping
) -> None:
    """Write frames as grey PNG files. ``line_by_picture``: {(source, image id): any sample of the image};
    ``folders``: {source: folder of its files in ``frames``}."""
    for source in sorted({source for source, _ in line_by_picture}):
        source_frames = [path for path in frames if Path(path).parent == Path(folders[source])]
        with ImageStore(source_frames) as store:
            for key in sorted(key for key in line_by_picture if key[0] == source):
                path = folder / image_path(*key)
                path.parent.mkdir(parents=True, exist_ok=True)
                grey = store.get(parse_sample(line_by_picture[key] | {"turns": []}))[..., 0]
                path.write_bytes(encode_image(".png", grey, [cv2.IMWRITE_PNG_COMPRESSION, 3]))
