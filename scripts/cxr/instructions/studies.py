"""The JSON in which MIMIC-ILS was published: split, study, and its entry; its masks lie in a folder beside it.

It holds a study a line, so that one study is in memory at a time when it is written, and can be found when it is read.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

JSON_NAME, MASK_FOLDER = "mimic_ils_instruction_answer.json", "lesion_mask"


def write_studies(path: Path, splits: Mapping[str, Iterable[tuple[str, dict]]]) -> None:
    """Write {split: {study: entry}}; each split gives (study, entry) in the order of the file, and is read once."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("{")
        for number, (split, studies) in enumerate(splits.items()):
            file.write(f"{',' * (number > 0)}\n{json.dumps(split)}: {{")
            for position, (study, entry) in enumerate(studies):
                text = json.dumps(entry, ensure_ascii=False)
                file.write(f"{',' * (position > 0)}\n{json.dumps(study)}: {text}")
            file.write("\n}")
        file.write("\n}\n")
