"""One table of what became of everything, from the rows of the sources to the samples that are scored."""

from pathlib import Path

import pytest

from cxr.base.tables import read_table
from cxr.radvlm.evaluation.conservation import run
from cxr.workflow.plan_radvlm import EvaluationPlan, RadvlmPlan
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import read

FILES = {
    "sources": ("sources/own/conservation.tsv", [
        "what outcome number", "images all 5", "images kept 4", "images no_image 1", "box all 0",
    ]),
    "conversations": ("conversations/own/outcomes.tsv", [
        "engine kind split outcome conversations", "rules standard train asked 4", "rules standard train kept 3",
        "rules standard train too_few_facts 1",
    ]),
    "instructions": ("instructions/all/conservation.tsv", [
        "source what outcome number", "own box all 3", "own box used 3", " lines all 9", " lines file 9",
    ]),
    "tunings": ("vlm/radvlm/conservation.tsv", [
        "what outcome number", "lines all 9", "lines learned 8", "lines too_long 1", "pass all 8", "pass learned 8",
        "passes all 2", "samples all 16", "samples seen 12", "samples drop_last 4", "updates all 12", "updates a 12",
    ]),
    "counts": ("evaluation/radvlm/counts.tsv", [
        "answers task outcome number", "test all asked 3", "test all scored 2", "test all too_long 1",
        "test a asked 3", "test a scored 2", "test a too_long 1", "test  unknown 7", "test all not_asked 5",
    ]),
}  # fmt: skip


def written(folder: Path, **changed: tuple[str, str]) -> Path:
    """Write the tables of all stages, one with a line in place of another, and join them."""
    paths = {}
    for name, (file, lines) in FILES.items():
        old, new = changed.get(name, ("", ""))
        path = folder / file
        path.parent.mkdir(parents=True)
        path.write_text("".join((new if line == old else line).replace(" ", "\t") + "\n" for line in lines))
        paths[name] = [str(path)]
    run(**paths, conservation=str(folder / "conservation.tsv"))
    return folder / "conservation.tsv"


def test_all_counts_stand_in_one_table(tmp_path):
    assert read_table(written(tmp_path)).rows() == [
        ("radvlm_sources", "own", "images", "all", 5), ("radvlm_sources", "own", "images", "kept", 4),
        ("radvlm_sources", "own", "images", "no_image", 1), ("radvlm_sources", "own", "box", "all", 0),
        ("radvlm_conversations", "own", "standard, train", "all", 4),
        ("radvlm_conversations", "own", "standard, train", "kept", 3),
        ("radvlm_conversations", "own", "standard, train", "too_few_facts", 1),
        ("radvlm_instructions", "all", "own, box", "all", 3), ("radvlm_instructions", "all", "own, box", "used", 3),
        ("radvlm_instructions", "all", "lines", "all", 9), ("radvlm_instructions", "all", "lines", "file", 9),
        ("vlm_tuning", "radvlm", "lines", "all", 9), ("vlm_tuning", "radvlm", "lines", "learned", 8),
        ("vlm_tuning", "radvlm", "lines", "too_long", 1), ("vlm_tuning", "radvlm", "pass", "all", 8),
        ("vlm_tuning", "radvlm", "pass", "learned", 8), ("vlm_tuning", "radvlm", "samples of 2 passes", "all", 16),
        ("vlm_tuning", "radvlm", "samples of 2 passes", "seen", 12),
        ("vlm_tuning", "radvlm", "samples of 2 passes", "drop_last", 4), ("vlm_tuning", "radvlm", "updates", "all", 12),
        ("vlm_tuning", "radvlm", "updates", "a", 12), ("radvlm_evaluation", "radvlm", "test, all", "all", 3),
        ("radvlm_evaluation", "radvlm", "test, all", "scored", 2),
        ("radvlm_evaluation", "radvlm", "test, all", "too_long", 1),
        ("radvlm_evaluation", "radvlm", "test, a", "all", 3),
        ("radvlm_evaluation", "radvlm", "test, a", "scored", 2),
        ("radvlm_evaluation", "radvlm", "test, a", "too_long", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("sources", "images kept 4", "images kept 3", "radvlm_sources, own: images: 5 in, 4 accounted for"),
        ("conversations", "rules standard train asked 4", "rules standard train asked 5",
         "radvlm_conversations, own: standard, train: 5 in, 4 accounted for"),
        ("instructions", " lines file 9", " lines file 10", "radvlm_instructions, all: lines: 9 in, 10 accounted for"),
        ("tunings", "samples seen 12", "samples seen 11", "vlm_tuning, radvlm: samples of 2 passes: 16 in, 15 account"),
        ("counts", "test a scored 2", "test a scored 3", "radvlm_evaluation, radvlm: test, a: 3 in, 4 accounted for"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_add_up_stops_the_job(tmp_path, name, old, new, told):
    with pytest.raises(AssertionError, match=f"^{told}"):
        written(tmp_path, **{name: (old, new)})


def test_the_table_has_the_mixes_and_the_tunings_that_scores_rest_on():
    runs = {
        "one": {"engine": "onevision_tiny", "lines": "radvlm:small"},
        "asked": {"engine": "onevision_tiny", "lines": "radvlm:all", "trained": False, "model": "some/model"},
    }
    mixes = {name: {"preset": "own"} for name in ("all", "small", "other")}
    settings = read({
        "vlm": {"tuning": {"runs": runs}},
        "radvlm": {"instructions": {"mixes": mixes}, "evaluation": {"runs": ["one", "asked"]}},
    })  # fmt: skip
    plan = EvaluationPlan(settings, VlmPlan(settings.vlm, "cpu", 0, list(mixes)))
    assert plan.mixes == ["all", "small"]
    own = RadvlmPlan(settings, ["00"])
    assert own.conversation_sources("all") == ["own"]
