"""Pictures with facts and conversations that people wrote (tests/radvlm/conversations/)."""

from pathlib import Path

import yaml

from cxr.radvlm.conversations.facts import ImageFacts, Phrase

FOLDER = Path(__file__).parents[1] / "radvlm/conversations"
PICTURES = yaml.safe_load((FOLDER / "pictures.yaml").read_text(encoding="utf-8"))


def facts_of(name: str) -> ImageFacts:
    """Return the facts of a picture."""
    told = PICTURES[name]["facts"]
    phrases = tuple(Phrase(one["text"], tuple(map(tuple, one["boxes"]))) for one in told["phrases"])
    return ImageFacts(
        "own", name, f"s{name}", f"p{name}", "train", view=told["view"], sex=told.get("sex"),
        sentences=dict(enumerate(told["sentences"], start=1)), present=tuple(told["present"]),
        absent=tuple(told["absent"]), phrases=phrases,
    )  # fmt: skip


def rounds_of(row: dict) -> list[list[str]]:
    """Return the rounds of a row of broken.yaml: those of its picture, with its fault."""
    turns = [list(turn) for turn in PICTURES[row["of"]]["turns"]]
    changes = row.get("change", {}) | ({row["at"]: row} if "at" in row else {})
    for at, change in changes.items():
        for place, name in enumerate(("question", "answer")):
            turns[at - 1][place] = change.get(name, turns[at - 1][place])
    turns += [
        [f"What about this, number {number}?", "Nothing more can be said."] for number in range(row.get("add", 0))
    ]
    return [turn for number, turn in enumerate(turns, start=1) if number not in row.get("drop", ())]


def messages_of(row: dict) -> list[dict]:
    """Return the messages of a row, with the roles that it gives."""
    said = [(role, text) for turn in rounds_of(row) for role, text in zip(("user", "assistant"), turn, strict=True)]
    roles = row.get("messages", {})
    return [{"role": roles.get(number, role), "text": text} for number, (role, text) in enumerate(said, start=1)]
