"""Self-test of the rules engine. It reads sentences with known results before the first report of a cohort."""

from collections.abc import Callable
from importlib.metadata import version

from cxr.base.errors import UserError
from cxr.base.resources import load_texts

RESOURCE_FILES = ("reading/self_test.yaml",)
PRESENCE = {"affirmed": {"positive"}, "denied": {"negative"}, "neither": set()}
PACKAGES = ("spacy", "negspacy")


def read_cases() -> list[tuple[str, str, str]]:
    """Return (sentence, lesion type, right reading) of each test case. Readings are "affirmed", "denied", "neither"."""
    cases_by_reading = load_texts(RESOURCE_FILES[0]).items()
    return [(sentence, lesion, reading) for reading, cases in cases_by_reading for sentence, lesion in cases]


def check_engine(structure: Callable[[list[str]], list[dict]]) -> None:
    """Raise UserError if ``structure``, an engine's function that reads sentences, reads a test case wrongly."""
    cases = read_cases()
    wrong = []
    for sentence, lesion, reading in cases:
        tuples = structure([sentence])
        presences = {item["presence"] for item in tuples if lesion in (item["lesion_type"], *item["candidates"])}
        wrong += [(sentence, lesion, reading)] if presences != PRESENCE[reading] else []
    if wrong:
        sentence, lesion, reading = wrong[0]
        packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
        raise UserError(
            f"the rules engine reads {len(wrong)} of {len(cases)} known sentences wrongly: in {sentence!r} {lesion} "
            f"should be {reading}. A package ({packages}) or resources/lexicon has changed: restore the original"
        )
