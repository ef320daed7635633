"""RadVLM with Snakemake: any number of shards and cores, a kill in every rule, a damaged shard: the same bytes."""

import json
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

import tiny_chexbert
from cohort_runs import write_csv
from conftest import ROOT, SLICE, snakemake, write_settings
from cxr.annotations import label_tables
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from declared_tables import differing, path_of
from dicom_files import dataset, encoded, picture, stored_values
from killed_runs import IN_PLACE, KILL, killed_run
from mimic_tree import mimic_tree, write_tables
from radvlm_trees import MS_CXR, cells
from slurm_runs import with_fault
from whole_runs import copy_repository

LLAVA = "results/radvlm/instructions/all/llava"
WORKLESS = {
    "radvlm", "radvlm_sources", "radvlm_filtered", "radvlm_conversations", "radvlm_instructions", "radvlm_evaluation",
    "vlm_tuning", "vlm_answers", "vlm_ask",
}  # fmt: skip
"""Rules that name what others make."""
TOLD = "radvlm_conversations_told"
ANSWERS = f"""import sys
sys.path += {[str(ROOT / "tests"), str(ROOT / "tests/support")]}
from cxr.llm import client
client.TRANSPORTS["offline"] = client.connect_stand_in"""
"""What lets a job ask the function of the tests, where it would load a language model."""
IN_PLACE_RULE = "radvlm_filtered_source"
PHRASE = "Small left pleural effusion."
STUDY = "mimic/files/p10/p10000032/s50000001"
IMAGES = ("aaaa-ap", "bbbb-pa")


def trees(folder: Path) -> dict[str, dict]:
    """Write MIMIC-CXR of one report on two pictures, and a phrase on one of them; return the settings of both."""
    xray = encoded(dataset(stored_values(picture(200, 180), 12, False), 12))
    mimic_tree(folder / "mimic", xray)
    write_tables(folder / "mimic")
    for name in IMAGES:
        (folder / STUDY / f"{name}.dcm").write_bytes(xray)
    (folder / f"{STUDY}.txt").write_text(
        f"FINAL REPORT\n FINDINGS: {PHRASE} New mild cardiomegaly. No pneumothorax. The right lung is clear. "
        "Degenerative changes.\n"
    )
    labels = [("10000032", "50000001", *cells(Cardiomegaly="1.0", Pleural_Effusion="1.0", Pneumothorax="0.0"))]
    write_csv(
        folder / "mimic/mimic-cxr-2.0.0-chexpert.csv.gz", ("subject_id", "study_id", *label_tables.LABELS), labels
    )
    rows = [(IMAGES[0], "Pleural Effusion", PHRASE, "p", 90, 110, 60, 50, 2544, 3056, "train")]
    write_csv(folder / "ms/MS_CXR_Local_Alignment_v1.1.0.csv", MS_CXR, rows)
    return {
        "mimic": {"format": "mimic", "path": str(folder / "mimic")},
        "ms": {"format": "ms_cxr", "path": str(folder / "ms"), "pictures": "mimic"},
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """What the settings name: the trees, a model's outputs, a folder of a model, and CheXbert of random weights."""
    return tmp_path_factory.mktemp("given")


@pytest.fixture(scope="module")
def given(place) -> dict:
    """Settings: the slice, two external sources, a model that is tuned for four updates and one that draws masks too,
    ROSALIA as a tool, outputs of another model, and CheXbert of random weights.
    """
    held = trees(place)
    (place / "other.jsonl").write_text(json.dumps({"sample_id": "none", "turn": 0, "text": "No."}) + "\n")
    other = {"adapter": "jsonl", "path": str(place / "other.jsonl")}
    tasks = {
        "report_generation": {"mimic": {"repeat": 1}}, "classification": {"mimic": {"repeat": 1}},
        "phrase_grounding": {"ms": {"repeat": 2}},
        "conversation": {"mimic": {"repeat": 1}}, "conversation_grounded": {"ms": {"repeat": 1}},
    }  # fmt: skip
    masks = {"engine": "onevision_tiny", "lines": "radvlm:all", "segmentation": "head"}
    return SLICE | {
        "replicates": 100,
        "cohort": {"shards": 3},
        "training": {"runs": {"base": {"weights": "lite", "trained": False}}},
        "radvlm": {
            "sources": {"use": ["own", *held], "list": held},
            "instructions": {"mixes": {"all": {"preset": "own", "tasks": tasks}}},
            "evaluation": {
                "predictions": {"other": other}, "runs": ["radvlm", "masks"],
                "segmenter": "rosalia:base", "annotators": ["chexbert"],
                "report_metrics": ["rouge_l", "findings_f1", "chexbert_f1"],
            },
            "chexbert": {"model": str(tiny_chexbert.words(place / "bert"))},
        },
        "vlm": {
            "tuning": {"onevision_tiny": {"updates": 4, "batch": 4, "micro_batch": 4}, "runs": {"masks": masks}},
            "answers": {"sets": {"radvlm_test": "radvlm:all/test"}, "max_new_tokens": 8},
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def cases(given, place) -> dict[str, tuple[dict, list[str]]]:
    """{name: settings, words for Snakemake}, of what is asked for by all runs, and of what is asked for apart: labels
    and conversations by a language model; one image, a model that is asked as it is, and answers made elsewhere to some
    samples.
    """
    radvlm, vlm = given["radvlm"], given["vlm"]
    model = {"model": "language_model:answer"}
    talks = {"engine": "vllm", "check": "json"}
    told = radvlm | {"sources": radvlm["sources"] | {"labels": "chexbert"}, "conversations": talks, "llm": model}
    as_it_is = {"engine": "qwen25vl", "model": str(place), "lines": "radvlm:all", "trained": False}
    other = {"path": str(place / "other.jsonl"), "set": "radvlm_test", "convention": "unit"}
    more = {
        "tuning": vlm["tuning"] | {"runs": vlm["tuning"]["runs"] | {"as_it_is": as_it_is}},
        "answers": vlm["answers"] | {"predictions": {"elsewhere": other}, "most": 2},
    }
    image = place / STUDY / f"{IMAGES[0]}.dcm"
    asked = [f"image={image}", 'questions=["Segment the edema.", "Where is it?"]', "run=radvlm"]
    apart = ["results/vlm/as_it_is/weights", "results/vlm/elsewhere/answers/radvlm_test.jsonl"]
    return {
        "all": (given, ["radvlm", LLAVA]),
        "told": (given | {"radvlm": told, "llm": {"gpus": 0}}, ["results/radvlm/conversations/ms/conversations.jsonl"]),
        "apart": (given | {"vlm": vlm | more}, ["vlm_ask", *apart, "--config", *asked]),
    }


def work(folder: Path, settings: Mapping) -> Path:
    """Make a working directory with the settings and the weights of CheXbert."""
    tiny_chexbert.save(folder / "weights/chexbert.pth", tiny_chexbert.state())
    return write_settings(folder, settings)


@pytest.fixture(scope="module")
def rules(cases, dry_run, tmp_path_factory) -> dict[str, list[str]]:
    """{case: the rules of RadVLM and of its models that it runs and no case before it}, of which each is killed."""
    found: dict[str, list[str]] = {}
    for name, (settings, words) in cases.items():
        jobs = dry_run(work(tmp_path_factory.mktemp("dry"), settings), *words)
        seen = WORKLESS.union(*found.values())
        found[name] = sorted(rule for rule in jobs if rule.startswith(("radvlm", "vlm")) and rule not in seen)
    return found


@pytest.mark.slow
def test_every_rule_is_killed_below(given, rules, tmp_path):
    """A new rule is run by a case, or has no work: only rules without a script may be left out."""
    listed = snakemake(work(tmp_path, given), "--list-rules").stdout.split()
    own = {name for name in listed if name.startswith(("radvlm", "vlm"))}
    assert len(own) > 30
    assert own - WORKLESS == set().union(*rules.values())
    for path in (path for part in ("radvlm", "vlm") for path in (ROOT / "rules" / part).glob("*.smk")):
        blocks = re.split(r"^(?=(?:use )?rule )", path.read_text(), flags=re.MULTILINE)
        assert not [one for one in blocks if re.match(rf"rule ({'|'.join(WORKLESS)}):", one) and "script:" in one]


# ---- runs and their bytes --------------------------------------------------------------------------------------------


class Copy:
    """A copy of the repository whose jobs can be told to fail. All runs are its: the tree may be edited meanwhile, and
    a fault is part of the digest of the code, which results carry.
    """

    def __init__(self, folder: Path, rules: Iterable[str]):
        self.folder, self.root = folder, copy_repository(folder / "copy")
        for name in rules:
            self.spare(name)
            with_fault(self.root, name, KILL, self.marker(name), ANSWERS if name == TOLD else "")
        self.spare("in_place")
        with_fault(self.root, IN_PLACE_RULE, IN_PLACE, self.marker("in_place"))

    def marker(self, name: str) -> Path:
        """Return the file that is there once a rule has failed, or is not to."""
        return self.folder / name

    def spare(self, name: str) -> None:
        """Let a rule work."""
        self.marker(name).touch()

    def run(self, folder: Path, *words: str, **how) -> Counter[str]:
        """Make targets; returns {rule: jobs}."""
        done = snakemake(folder, *words, root=self.root, **how)
        return Counter(re.findall(r"^Finished jobid: \d+ \(Rule: (\w+)\)", done.stderr, re.MULTILINE))


@pytest.fixture(scope="module")
def copy(tmp_path_factory, rules) -> Copy:
    return Copy(tmp_path_factory.mktemp("repository"), set().union(*rules.values()))


@pytest.fixture(scope="module")
def run(tmp_path_factory, cases, copy) -> Path:
    """One finished run, three shards, two cores. Tests must not write in it."""
    settings, words = cases["all"]
    folder = work(tmp_path_factory.mktemp("radvlm") / "run", settings)
    copy.run(folder, *words)
    return folder


def files(run: Path) -> dict[str, bytes]:
    """{path: bytes} of all results of RadVLM and of its models."""
    paths = (path for part in ("radvlm", "vlm") for path in (run / "results" / part).rglob("*") if path.is_file())
    return {path.relative_to(run / "results").as_posix(): path.read_bytes() for path in paths}


def different(run: Path, held: Path) -> list[str]:
    """Return the files that only one of two runs has, or that have other bytes."""
    one, two = files(run), files(held)
    return sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))


SHARD = re.compile(r"(.*/)\d\d([.][^/]*)")


def without_shards(run: Path) -> dict[str, object]:
    """{path: bytes} of what does not stand by shards, and {path with ``*``: rows in order} of what does."""
    found: dict[str, object] = {}
    for name, data in files(run).items():
        shard = SHARD.fullmatch(name)
        if not shard:
            found[name] = data
        elif shard[2] not in (".counts.tsv", ".conservation.tsv"):  # their sums stand in the table of all
            found.setdefault(f"{shard[1]}*{shard[2]}", []).extend(rows(run / "results" / name))
    return {name: sorted(held, key=repr) if isinstance(held, list) else held for name, held in found.items()}


def same_in_any_shards(run: Path, held: Path) -> None:
    made, wanted = without_shards(run), without_shards(held)
    assert len([name for name in wanted if "*" not in name]) > 80
    assert len(wanted["radvlm/sources/mimic/frames/*.h5"]) == len(IMAGES)
    assert sorted(made) == sorted(wanted)
    assert [name for name in wanted if made[name] != wanted[name]] == []


def rows(path: Path) -> list:
    if path.suffix == ".h5":
        with Shard(path) as shard:
            fields = ("image", "to_original", "original_shape")
            return [(name, *(shard.get(field, name).tobytes() for field in fields)) for name in shard.ids]
    return list(read_lines(path)) if path.suffix == ".jsonl" else read_table(path).rows()


def torn(folder: Path, run: Path, shards: bool = True) -> list[str]:
    """Return the finished run's files that are there with other bytes; those that stand by shards if ``shards``."""
    there = files(folder)
    found = {name for name, held in files(run).items() if there.get(name, held) != held}
    return sorted(name for name in found if shards or not SHARD.fullmatch(name))


def begun(run: Path, folder: Path, settings: Mapping, *gone: str) -> Path:
    """Return a copy of the finished run with other settings, and without some of its results."""
    shutil.copytree(run, folder, symlinks=True)
    for name in gone:
        shutil.rmtree(folder / "results" / name)
    return write_settings(folder, settings)


# ---- the proofs ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_source_is_in_the_mix_and_every_table_is_declared(run):
    lines = [line for split in ("train", "validate", "test")
             for line in read_lines(run / f"results/radvlm/instructions/all/{split}.jsonl")]  # fmt: skip
    tasks = {(line["task"], line["source"]) for line in lines}
    assert {
        ("classification", "mimic"),
        ("report_generation", "mimic"),
        ("phrase_grounding", "ms"),
        ("conversation_grounded", "own"),
    } <= tasks
    tables = [name for name in files(run) if name.endswith((".tsv", ".parquet"))]
    assert len(tables) > 40
    for name in tables:
        declared = path_of(f"results/{name}")
        assert declared, name
        assert not differing(run / "results" / name, declared)


@pytest.mark.slow
def test_one_shard_on_one_core_gives_the_same_bytes(run, cases, copy, tmp_path):
    settings, words = cases["all"]
    copy.run(work(tmp_path, settings | {"cohort": {"shards": 1}}), *words, cores=1)
    same_in_any_shards(tmp_path, run)


def kill_each(
    copy: Copy, names: Sequence[str], folder: Path, words: Sequence[str], after: Callable[[], object] = lambda: None
) -> None:
    """Make targets on one core while each rule is killed once; ``after`` is called after each kill."""
    for name in names:
        copy.marker(name).unlink()
    ends = []
    while not ends or ends[-1] == -signal.SIGKILL:
        done = killed_run(copy.root, folder, *words)
        ends.append(done.returncode)
        after()
    spared = [name for name in names if not copy.marker(name).exists()]
    for name in spared:
        copy.spare(name)
    assert ends == [-signal.SIGKILL] * len(names) + [0], done.stderr[-3000:]
    assert not spared
    assert not list((folder / "results").rglob("*.part"))


@pytest.mark.slow
def test_killed_in_every_rule_it_ends_in_the_same_bytes_in_seven_shards(run, cases, rules, copy, tmp_path):
    settings, words = cases["all"]
    assert len(rules["all"]) > 24

    def nothing_torn() -> None:
        assert torn(tmp_path, run, shards=False) == []

    work(tmp_path, settings | {"cohort": {"shards": 7}})
    kill_each(copy, rules["all"], tmp_path, words, nothing_torn)
    same_in_any_shards(tmp_path, run)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["told", "apart"])
def test_killed_in_rules_that_are_asked_apart_it_ends_in_the_same_bytes(run, cases, rules, copy, tmp_path, case):
    settings, words = cases[case]
    folder, whole = (begun(run, tmp_path / name, settings) for name in ("killed", "whole"))
    assert copy.run(whole, *words).keys() >= set(rules[case])
    kill_each(copy, rules[case], folder, words)
    assert different(folder, whole) == []


@pytest.mark.slow
def test_a_stage_that_writes_in_place_is_seen_by_the_kill(run, given, copy, tmp_path):
    """The sabotage of the test above: half a file has its name, and the next run would take it for whole."""
    folder = begun(run, tmp_path / "run", given, "radvlm/filtered/mimic")
    copy.marker("in_place").unlink()
    done = killed_run(copy.root, folder, "radvlm_filtered")
    happened = copy.marker("in_place").exists()
    copy.spare("in_place")
    assert (done.returncode, happened) == (-signal.SIGKILL, True)
    (found,) = torn(folder, run)
    assert found.startswith("radvlm/filtered/mimic/")
    assert killed_run(copy.root, folder, "radvlm_filtered").returncode == 0
    assert not torn(folder, run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shard", "gone", "target", "again"),
    [
        ("sources/own/01.facts.parquet", "sources/own/facts.parquet", "results/radvlm/sources/own/facts.parquet",
         {"radvlm_sources_own": 1, "radvlm_sources_tables": 1}),
        ("sources/mimic/frames/02.h5", "instructions/all/llava", LLAVA,
         {"radvlm_sources_frames": 1, "radvlm_instructions_part": 2, "radvlm_instructions_mix": 1,
          "radvlm_instructions_llava": 1}),
    ],
)  # fmt: skip
def test_a_damaged_shard_is_made_anew_alone(run, given, copy, tmp_path, shard, gone, target, again):
    """The job that reads it names it; then its own rule runs for this shard alone, and what is made from it."""
    folder = begun(run, tmp_path / "run", given)
    damaged, missing = folder / "results/radvlm" / shard, folder / "results/radvlm" / gone
    shutil.rmtree(missing) if missing.is_dir() else missing.unlink()
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 0x10
    damaged.write_bytes(bytes(data))
    assert torn(folder, run) == [f"radvlm/{shard}"]
    done = snakemake(folder, target, root=copy.root, check=False)
    assert done.returncode == 1
    assert f"results/radvlm/{shard} is damaged and was renamed to {damaged.name}.damaged: run again" in done.stderr
    assert copy.run(folder, target) == again
    assert different(folder, run) == [f"radvlm/{shard}.damaged"]
