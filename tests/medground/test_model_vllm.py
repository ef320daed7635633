"""Queries and judge by a real vLLM on the CPU, with tiny models that look at pictures, made here (`make vllm`)."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import tiny_vlm
import vllm_cpu
from conftest import snakemake, write_settings
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.llm.asking import ask, find_violation
from cxr.llm.client import connect
from cxr.llm.messages import vllm_messages
from cxr.llm.options import Execution
from cxr.medground.asking import Prompts, Subject
from cxr.medground.logic.facts import Facts
from cxr.medground.queries.ask_model import QuestionOptions, build_request, find_contradiction
from cxr.medground.verification.ask_judge import CONFIRM_SCHEMA, JudgeOptions, build_question, make_views, select_schema
from cxr.workflow.plan_medground import MedgroundPlan
from cxr.workflow.settings import read
from medground_model import worded

pytest.importorskip("vllm", reason="vLLM is not installed here: `make vllm` installs and runs it")
pytest.importorskip("torchvision", reason="vLLM's vision-language models import torchvision: `make vllm` installs it")

PICTURES = 5
PROMPTS = {
    "generate": {"system": "Word it.", "user": "Targets: {targets}", "user_free": "Choose {count}."},
    "confirm": {"system": "Check it.", "user": "Expression: {query}"},
    "select": {"system": "Find it.", "user": "Expression: {query}"},
}
YES = {"observed": "a disc", "grounded": True, "unambiguous": True, "reason": "it matches"}
HERE = Execution(gpus=0, gpu_memory=0.9, server="", requests=4, timeout_s=300, server_key="x.server")


@pytest.fixture(scope="module", autouse=True)
def _cpu():
    with vllm_cpu.environment():
        yield


def settings_of(folder: Path) -> dict:
    llm = {"max_tokens": 500, "picture_tokens": 64, "prompts": str(folder / "prompts.yaml")}
    queries = {"engine": "vllm", "per_image": 1, "llm": {"model": str(folder / "words")}}
    queries["llm"]["temperature"] = 0.0
    verification = {"judge": "vllm", "llm": {"model": str(folder / "judge")}}
    sources = {"sets": {"cells": {"kind": "cells", "domain": "nuclei"}}, "cells": PICTURES}
    tuning = {"tiny": {"updates": 20}}
    return {
        "llm": {"context": 2048, "gpus": 0},
        "medground": {"sources": sources, "queries": queries, "verification": verification, "llm": llm},
        "vlm": {"tuning": tuning, "answers": {"engine": "vllm", "max_new_tokens": 64}},
    }


class World:
    """Pictures, regions and options of the run in a folder, as its jobs get them."""

    def __init__(self, folder: Path):
        self.folder, self.prompts = folder, Prompts.read(folder / "prompts.yaml")
        plan = MedgroundPlan(read(settings_of(folder)), ["00"], ["default"])
        self.questions = QuestionOptions(**plan.options["queries_told"])
        self.judging = JudgeOptions(**plan.options["verification_told"])
        part = folder / "results/medground"
        self.rows = defaultdict(list)
        for row in read_table(part / "regions/cells/00.parquet").iter_rows(named=True):
            self.rows[row["image_id"]].append(row)
        images = read_table(part / "sources/cells/images.parquet").iter_rows(named=True)
        self.images = {row["image_id"]: row for row in images}
        with Shard(part / "sources/cells/00.h5") as shard:
            self.facts = Facts.from_shard(shard)
            self.pictures = {name: shard.get("picture", name) for name in shard.ids}

    def asked(self, name: str):
        return build_request(self.subject(name), self.questions, self.prompts)

    def subject(self, name: str) -> Subject:
        return Subject("cells", self.images[name], self.rows[name], self.facts, self.pictures[name])

    def judged(self, asked: str, line: dict, picture: str = ""):
        """Return the question to the judge about a line; ``picture``: of another image, in place of its own."""
        name = line["image_id"]
        views = make_views(self.pictures[picture or name], {row["region"]: row for row in self.rows[name]})
        return build_question(asked, line, views, self.subject(name), self.judging, self.prompts).question

    def lines(self) -> list[dict]:
        """Return the lines that a model words which has learned all by heart."""
        found = []
        for name in sorted(self.rows):
            targets = [list(target) for _, target in self.asked(name).fields["targets"]]
            texts = worded([[one + 1 for one in target] for target in targets])["queries"]
            found += [
                {"query_id": f"{name}{at}", "image_id": name, "query": text["text"], "regions": target}
                for at, (text, target) in enumerate(zip(texts, targets, strict=True))
            ]
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    """A run up to its regions, and two models that have learned the questions of it."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "prompts.yaml").write_text(yaml.safe_dump(PROMPTS))
    for model in ("words", "judge"):  # the settings name their folders
        (folder / model).mkdir()
    write_settings(folder, settings_of(folder))
    snakemake(folder, "medground_regions", cores=1)
    found = World(folder)
    lessons = []
    for name in sorted(found.rows):
        asked = found.asked(name)
        told = worded([[one + 1 for one in target] for _, target in asked.fields["targets"]])
        lessons.append(tiny_vlm.Lesson(asked.question, json.dumps(told)))
    losses = tiny_vlm.train(folder / "words", lessons, updates=250, seed=1)
    assert losses[-1] < 0.1 < losses[0], losses[::25]
    lessons = []
    for line in found.lines():
        lessons.append(tiny_vlm.Lesson(found.judged("confirm", line), json.dumps(YES)))
        numbers = {"targets": [one + 1 for one in line["regions"]]}
        lessons.append(tiny_vlm.Lesson(found.judged("select", line), json.dumps(numbers)))
    losses = tiny_vlm.train(folder / "judge", lessons, updates=600, seed=2)
    assert losses[-1] < 0.05 < losses[0], losses[::25]
    return found


@pytest.fixture(scope="module")
def loaded(world):
    """The judge in this process: the function that asks it, and vLLM's model."""
    import vllm

    made = []

    def remembered(**how):
        made.append(vllm_llm(**how))
        return made[-1]

    vllm_llm, vllm.LLM = vllm.LLM, remembered
    try:
        generate = connect(world.judging, HERE)
    finally:
        vllm.LLM = vllm_llm
    return generate, made[0]


def test_a_blind_answer_depends_on_the_picture(world, loaded):
    """The same words and numbers beside the picture of another image: the answers that were learned are lost."""
    generate, _ = loaded
    lines = world.lines()
    names = sorted(world.rows)
    other = dict(zip(names, [*names[1:], names[0]], strict=True))
    own = ask([world.judged("select", line) for line in lines], generate, world.judging)
    exchanged = ask([world.judged("select", line, other[line["image_id"]]) for line in lines], generate, world.judging)
    wanted = [{"targets": [one + 1 for one in line["regions"]]} for line in lines]
    right, wrong = (
        sum(answer.value == value for answer, value in zip(answers, wanted, strict=True))
        for answers in (own, exchanged)
    )
    changed = sum(one.value != two.value for one, two in zip(own, exchanged, strict=True))
    print(f"blind select, {len(lines)} queries: {right} as learned, with another picture {wrong}; {changed} change")
    assert right >= wrong + 2
    assert changed >= 0.5 * len(lines)


def test_another_picture_changes_the_first_log_probabilities_and_the_same_does_not(world, loaded):
    from vllm import SamplingParams

    _, model = loaded
    line = world.lines()[0]
    names = sorted(world.rows)

    def first(picture: str) -> dict[int, float]:
        messages = vllm_messages(world.judged("select", line, picture).messages)
        how = SamplingParams(temperature=0.0, max_tokens=1, logprobs=10)
        (output,) = model.chat([messages], how, use_tqdm=False)
        return {token: one.logprob for token, one in output.outputs[0].logprobs[0].items()}

    own, again, other = first(names[0]), first(names[0]), first(names[1])

    def apart(one, two) -> float:
        shared = one.keys() & two.keys()
        return float(np.max([abs(one[token] - two[token]) for token in shared])) if shared else np.inf

    print(f"log-probabilities: the same picture {apart(own, again):.1e}, another {apart(own, other):.1e}")
    assert apart(own, again) < 1e-4
    assert apart(own, other) > 1e-2


def test_the_picture_of_an_image_is_encoded_once_for_all_its_queries(world, loaded, monkeypatch):
    """Pictures that vLLM has not seen yet, in the order of the judge's questions: an image's queries share its own."""
    from vllm import SamplingParams

    _, model = loaded
    monkeypatch.setattr(world, "pictures", {name: 255 - picture for name, picture in world.pictures.items()})
    lines, encoded = world.lines(), []

    def count(module, args, named):
        encoded.append(len(named.get("grid_thw", args[-1])))

    hooks = model.apply_model(lambda module: module.visual.register_forward_pre_hook(count, with_kwargs=True))
    how = SamplingParams(temperature=0.0, max_tokens=1)
    asked = [vllm_messages(world.judged("select", line).messages) for line in lines]
    outputs = [model.chat([one], how, use_tqdm=False)[0] for one in asked]
    for hook in hooks:
        hook.remove()
    images = {line["image_id"] for line in lines}
    print(f"{len(lines)} queries of {len(images)} images: {sum(encoded)} pictures encoded")
    assert len(outputs) == len(lines) > len(images)
    assert sum(encoded) == len(images)


def test_every_answer_fits_its_schema(world, loaded):
    """Questions of one schema with the schema of another: only constrained decoding satisfies it."""
    generate, _ = loaded
    lines = world.lines()
    swapped = [replace(world.judged("confirm", line), schema=select_schema(line["regions"])) for line in lines]
    swapped += [replace(world.judged("select", line), schema=CONFIRM_SCHEMA) for line in lines]
    said = generate(swapped, 1)
    for text, question in zip(said, swapped, strict=True):
        assert find_violation(json.loads(text), question.schema) is None


def test_a_served_judge_sees_the_same(world, loaded, tmp_path):
    generate, _ = loaded
    questions = [world.judged("select", line) for line in world.lines()[:6]]
    asked = replace(world.judging, transport="server")
    with vllm_cpu.served(Path(world.judging.model), tmp_path / "server.log", "float32", context=2048) as address:
        theirs = connect(asked, replace(HERE, server=address))(questions, 0)
    ours = generate(questions, 0)
    same = [json.loads(one) == json.loads(two) for one, two in zip(ours, theirs, strict=True)]
    assert sum(same) >= 0.8 * len(same)


def test_the_whole_path(world):
    """Words, both questions of the judge, dataset, tuning and answers by vLLM, through the workflow."""
    folder = world.folder
    runs = ("medground", "medground_label_replaced")
    answered = [f"results/vlm/{run}/answers/medground_test.jsonl" for run in runs]
    snakemake(folder, "medground_dataset", *answered, cores=1)
    part = folder / "results/medground"
    told = list(read_lines(part / "queries/cells/00.told.jsonl"))
    assert len(told) == PICTURES
    for line in told:
        asked = world.asked(line["image_id"])
        assert line["problem"] is None or line["answer"] is None
        if line["answer"] is not None:
            assert find_violation(line["answer"], asked.question.schema) is None
            assert find_contradiction(line["answer"]) is None
    made = list(read_lines(part / "queries/cells/00.jsonl"))
    assert len(made) >= PICTURES
    counts = read_table(part / "dataset/conservation.tsv")
    assert counts.height
    assert (counts["in"] == counts["out"]).all()
    for asked in ("confirm", "select"):
        answers = list(read_lines(part / f"verification/cells/00.{asked}.jsonl"))
        schemas = [line["problem"] for line in answers]
        print(f"{asked}: {len(answers)} questions, {sum(problem is None for problem in schemas)} judged")
        assert sum(problem is None for problem in schemas) >= 0.7 * len(schemas)
    rates = read_table(part / "verification/passrate.tsv").filter(source="total").to_dicts()
    print([(row["stage"], row["accepted"], row["reasons"]) for row in rates])
    kept = list(read_lines(part / "verification/cells/00.jsonl"))
    assert kept
    for line in kept:
        assert line["checks"]["judge"] == "vllm"
        confirmed, selected = line["checks"]["observed"]
        assert (confirmed["grounded"], confirmed["unambiguous"]) == (True, True)
        assert sorted(selected["targets"]) == sorted(one + 1 for one in line["regions"])
    test = list(read_lines(part / "dataset/test.jsonl"))
    for path in answered:
        answers = list(read_lines(folder / path))
        assert [line["sample_id"] for line in answers] == [line["query_id"] for line in test]
        assert not [line["failure"] for line in answers if line["failure"]]
