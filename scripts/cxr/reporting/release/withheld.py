"""Withhold data that a data-use agreement forbids to share, and yield the lines of the dataset without them.

If ``pixels`` are withheld, the package has no grey value of an X-ray. The column ``image`` of the table of images is
omitted. No other part has pixels, because DICOM segmentations refer to their X-ray without copying it.

If ``report_text`` is withheld, the package has no word of a report. ``section_content`` and ``quote`` are omitted. The
authors' layout keeps ``section_content`` as an empty text, because its readers need the field. Facts derived from a
report stay: ``section_name``, ``sentence_index``, type, target, certainty, locations. Instruction and answer are made
from templates.

If ``ids`` are withheld, the package has no identifier of a subject, study or image. ``subject_id``, ``study_id``,
``image_id``, the study in ``pair_id``, and ``mask_id`` (a digest from which a study could be guessed) become keyed
digests everywhere, also in file names. DICOM segmentations are omitted, because their references are identifiers.
Studies are sorted by their digests. The same key gives the same digests, so that versions can be compared. The data are
not anonymous, because anyone who has the images can match their sizes and masks.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from cxr.base.errors import UserError
from cxr.base.secrets import LETTERS, keyed_digest, read_secret
from cxr.base.tables import read_lines
from cxr.reporting.release.parquet import CONFIGS

PIXELS, REPORT_TEXT, IDS = "pixels", "report_text", "ids"
REPORT_FIELDS = ("section_content", "quote")
"""Fields of a line that contain words of a report."""
ID_LETTERS = LETTERS | {"sample_id": "r", "fact_id": "f"}
"""{kind of identifier: first letter of the digest that replaces it}, for the ILS dataset and RadVLM's mixes."""


class Withheld:
    """The data to withhold. ``kinds`` are some of pixels, report_text and ids. ``salt``: file with the key for ids."""

    def __init__(self, kinds: Sequence[str], salt: str | Sequence[str] = ()):
        self.pixels, self.report_text, self.ids = (kind in kinds for kind in (PIXELS, REPORT_TEXT, IDS))
        self._key = read_secret("release.salt", salt if isinstance(salt, str) else "") if self.ids else b""

    def publish_id(self, field: str, value: str) -> str:
        """Return the digest of an identifier of the kind ``field`` if ids are withheld, else the identifier itself."""
        return keyed_digest(self._key, field, value, ID_LETTERS[field]) if self.ids and value else value

    def publish_line(self, line: dict) -> dict:
        """Return a line of the dataset without withheld data, and with published ids."""
        published_line = {
            field: value for field, value in line.items() if not (self.report_text and field in REPORT_FIELDS)
        }
        if self.ids:
            published_line |= {
                field: self.publish_id(field, line[field]) for field in LETTERS if line[field] is not None
            }
            published_line["pair_id"] = self.publish_pair_id(line["pair_id"], line["study_id"])
        return published_line

    def published_columns(self) -> dict[str, dict]:
        """Return {table of a package: {column: type}} without withheld columns."""
        is_withheld = {"image": self.pixels, "section_content": self.report_text, "quote": self.report_text}
        return {
            config: {name: kind for name, kind in columns.items() if not is_withheld.get(name)}
            for config, (_, columns) in CONFIGS.items()
        }

    def publish_pair_id(self, pair_id: str, study_id: str) -> str:
        """Return a pair id. If ids are withheld, the study id at its beginning is replaced by the study's digest."""
        return self.publish_id("study_id", study_id) + pair_id.removeprefix(study_id) if self.ids else pair_id


def read_kept_pairs(test: str | Sequence[str]) -> set[str] | None:
    """Return the pair ids in the file ``test``, or None without a file. Raises UserError if it is no file of pairs."""
    if not test:
        return None
    try:
        return {line["pair_id"] for line in read_lines(test)}
    except (KeyError, TypeError, ValueError):
        raise UserError(f"release.test: {test} is not a file of pairs: give one (docs/reference/files.md)") from None


def iterate_studies(
    path: str, kept_pair_ids: set[str] | None, withheld: Withheld | None = None
) -> Iterator[tuple[str, list[dict]]]:
    """Yield (study_id, lines of the study that :func:`keep_lines` keeps), without studies of which no line is kept.

    Studies are in the order of the file, or sorted by digest if identifiers are withheld. The file is sorted by study,
    so a study's position would reveal its identifier to anyone with a list of all studies.
    """
    publish = withheld.publish_id if withheld is not None and withheld.ids else None
    for study_id, lines in read_groups(path, "study_id", publish):
        if kept_lines := keep_lines(lines, kept_pair_ids):
            yield study_id, kept_lines


def keep_lines(lines: Iterable[dict], kept_pair_ids: set[str] | None) -> list[dict]:
    """Return the lines without those of the test split whose pair id is not in ``kept_pair_ids``. If it is None, all
    lines are returned."""
    return [
        line for line in lines if kept_pair_ids is None or line["split"] != "test" or line["pair_id"] in kept_pair_ids
    ]


def read_groups(path: str, field: str, publish: Callable[[str, str], str] | None) -> Iterator[tuple[str, list[dict]]]:
    """Yield (value of ``field``, consecutive lines with this value) from a file.
    Values are in the order of the file or, if ``publish`` is given, sorted by ``publish(field, value)``."""
    if publish is None:
        yield from ((value, list(group)) for value, group in groupby(read_lines(path), key=itemgetter(field)))
        return
    places, begin = [], 0
    with open(path, "rb") as file:
        for value, group in groupby(file, key=lambda line: json.loads(line)[field]):
            size = sum(len(line) for line in group)
            places.append((publish(field, value), value, begin, size))
            begin += size
        for _, value, begin, size in sorted(places):
            file.seek(begin)
            yield value, [json.loads(line) for line in file.read(size).splitlines()]


def group_units(lines: Iterable[dict]) -> list[dict]:
    """Return one line for each distinct (image, mask, target, location): the first one, to which ``pair_ids`` adds the
    ids of all lines that share these values. Negative lines, which have no mask, are left out."""
    unit_by_key: dict[tuple, dict] = {}
    for line in lines:
        if line["seg"]:
            key = (line["image_id"], line["mask_id"], line["target"], tuple(line["location"]))
            unit_by_key.setdefault(key, line | {"pair_ids": []})["pair_ids"].append(line["pair_id"])
    return list(unit_by_key.values())
