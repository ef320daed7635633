"""Read the paper's scores, which are shown beside ours (``resources/paper_tables.yaml``, section ``evaluation``)."""

from dataclasses import dataclass
from pathlib import Path

import yaml

MEASURES = ("giou", "ciou", "n_acc")
ROSALIA = "ROSALIA"


@dataclass(frozen=True)
class PaperScores:
    """Printed values in per cent, and a note on each cell that contradicts the paper's own sums."""

    models: dict[str, dict[str, float]]
    """Model -> measure (Table 4, and the variants of A.7 and C.3)."""
    lesions: dict[str, dict[str, float | None]]
    """Lesion type or ``total`` -> measure (Table 5)."""
    text: dict[str, dict[str, float | None]]
    """positive, negative, total (Table 6), lesion types (Table 14) -> overall or type of instruction."""
    notes: dict[tuple[str, str, str], str]

    def beside(self, model: str) -> "PaperScores":
        """Return the values to show beside a run of ``model``: all for ROSALIA, only the totals for another model."""
        if model == ROSALIA:
            return self
        none = dict.fromkeys(MEASURES)
        lesions = dict.fromkeys(self.lesions, none) | {"total": self.models.get(model, none)}
        text = {group: dict.fromkeys(row) for group, row in self.text.items()}
        return PaperScores(self.models, lesions, text, {})


def read_paper_scores(path: str | Path) -> PaperScores:
    """Read the printed values."""
    data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))["evaluation"]

    def named(rows: dict, columns: list[str]) -> dict:
        return {name: dict(zip(columns, row, strict=True)) for name, row in rows.items()}

    notes = {(note["table"], *note["cell"]): note["note"] for note in data["notes"]}
    text = named(data["text"], data["text_columns"])
    return PaperScores(named(data["models"], data["columns"]), named(data["lesions"], data["columns"]), text, notes)
