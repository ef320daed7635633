"""A test of the rules engine before the first report of a cohort: sentences whose reading is known."""

from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path

import yaml

from cxr.base.errors import UserError

PRESENCE = {"affirmed": {"positive"}, "denied": {"negative"}, "neither": set()}
PACKAGES = ("spacy", "negspacy")


@cache
def read_cases(path: str | Path) -> tuple[tuple[str, str, str], ...]:
    """Return (sentence, lesion type, reading) of each case; a reading is a key of :data:`PRESENCE`."""
    data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    return tuple((sentence, lesion, reading) for reading, cases in data.items() for sentence, lesion in cases)


def check_engine(structure: Callable[[list[str]], list[dict]], path: str | Path) -> None:
    """Raise UserError if an engine reads a known sentence otherwise than it should. ``structure``: of one section."""
    cases = read_cases(path)
    wrong = [case for case in cases if _presence(structure([case[0]]), case[1]) != PRESENCE[case[2]]]
    if wrong:
        sentence, lesion, reading = wrong[0]
        packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
        raise UserError(
            f"the rules engine reads {len(wrong)} of {len(cases)} known sentences wrongly: in {sentence!r} {lesion} "
            f"should be {reading}. A package ({packages}) or resources/lexicon has changed: restore it"
        )


def _presence(tuples: list[dict], lesion: str) -> set[str]:
    return {item["presence"] for item in tuples if lesion in (item["lesion_type"], *item["candidates"])}
