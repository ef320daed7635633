"""Random access to the lines of files, by position or by the block of images that they are about."""

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import IO

from cxr.base.tables import CRC, read_lines


class LineFiles:
    """Lines of several files, accessed by position; a context manager."""

    def __init__(self, paths: Sequence[str]):
        self._paths = paths

    def __enter__(self) -> "LineFiles":
        self._stack = ExitStack()
        self._files: list[IO[bytes]] = []
        self._starts = [array("Q") for _ in self._paths]
        for path, starts in zip(self._paths, self._starts, strict=True):
            file, at = self._stack.enter_context(open(path, "rb")), 0
            self._files.append(file)
            for line in file:
                starts.append(at)
                at += len(line)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def num_lines(self) -> int:
        """Number of the lines of all files."""
        return sum(map(len, self._starts))

    def get(self, part: int, row: int) -> bytes:
        """Return line ``row`` of file ``part``, both from 0, as bytes."""
        self._files[part].seek(self._starts[part][row])
        return self._files[part].readline()


class LinesByBlock(LineFiles):
    """Lines about images, by block; memory holds positions only. A context manager.

    ``blocks``: {image: block}; ``about``: returns the images of a line. num_images: references to images in all lines;
    num_by_missing_image: references to each image without a block.
    """

    def __init__(self, paths: Sequence[str], blocks: Mapping[str, int], about: Callable[[dict], Sequence[str]]):
        super().__init__(paths)
        self._rows: dict[int, array] = defaultdict(lambda: array("Q"))
        self.num_by_missing_image: Counter[str] = Counter()
        self.num_images = 0
        for part, path in enumerate(paths):
            for row, line in enumerate(read_lines(path)):
                images = about(line)
                self.num_images += len(images)
                self.num_by_missing_image.update(image for image in images if image not in blocks)
                for block in {blocks[image] for image in images if image in blocks}:
                    self._rows[block].extend((part, row))

    def lines_of_block(self, block: int) -> list[dict]:
        """Return the lines about images of a block, in file order."""
        places = iter(self._rows.get(block, ()))
        return [self._line(part, row) for part, row in zip(places, places, strict=True)]

    def _line(self, part: int, row: int) -> dict:
        line = json.loads(self.get(part, row))
        line.pop(CRC, None)
        return line
