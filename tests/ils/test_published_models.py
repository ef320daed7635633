"""The published LISA and ROSALIA, asked and scored without a training: from their files to Tables 4 to 6."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import polars as pl
import pytest
import torch

import published_models as published
from conftest import SLICE, snakemake, write_settings
from cxr.base.tables import read_table
from cxr.ils.inference.infer import run_split
from cxr.ils.inference.settings import InferenceOptions
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.samples import PairOptions, Pairs, collate
from cxr.ils.rosalia.tokens import Tokens
from cxr.ils.training.rosalia import run_untrained
from cxr.imaging.weights import catalogue
from cxr.workflow import settings
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings, SettingsError, parse_section
from fake_hub import serve

RUNS = {"rosalia7b": {"weights": "rosalia", "trained": False}, "lisa7b": {"weights": "lisa", "trained": False}}
CHOSEN = {
    "training": {"runs": RUNS, "rosalia": {"dtype": "float32"}}, "inference": {"max_new_tokens": 6, "size": 128},
    "evaluation": {"size": 128},
    "replicates": 100,
}  # fmt: skip


def models(results: Path) -> tuple[Tokens, dict[str, Rosalia]]:
    """The tokenizer, and for each run a model whose answers begin with [SEG]."""
    tokens = Tokens.prepare(published.TOKENIZER)
    made = {name: published.tiny(tokens, seed) for seed, name in enumerate(RUNS)}
    made["lisa7b"].llava.model.vision_tower = made["rosalia7b"].llava.model.vision_tower  # one CLIP serves both
    for model in made.values():
        asking = InferenceOptions(**stage_options(parse_section(Settings, CHOSEN))["inference"])
        options = PairOptions.for_model(model.config, asking, answers=False, equalise=True)
        pairs = Pairs(lines=str(results / "dataset/default/test.jsonl"), tokens=tokens, options=options,
                      frames=sorted((results / "frames").glob("*.h5")))  # fmt: skip
        published.learn_to_begin_with_seg(model, collate([pairs[0]], tokens.pad))
    return tokens, made


@pytest.fixture(scope="module")
def asked(workflow_run, tmp_path_factory) -> tuple[Path, dict[str, Rosalia], Tokens]:
    """A copy of the slice's run in which `snakemake evaluation` has asked both models, placed as they are published."""
    run = tmp_path_factory.mktemp("published") / "run"
    shutil.copytree(workflow_run, run, symlinks=True)
    tokens, made = models(run / "results")
    published.words(run / "weights/lisa")
    published.write(run / "weights/lisa", made["lisa7b"], "bin", 3)
    published.write(run / "weights/rosalia", made["rosalia7b"], "safetensors", 4)
    write_settings(run, SLICE | CHOSEN)
    hub = {"openai/clip-vit-large-patch14": published.clip_files(made["lisa7b"])}
    with serve(hub) as address, pytest.MonkeyPatch.context() as patched:
        for name, value in {
            "HF_ENDPOINT": address,
            "NO_PROXY": "127.0.0.1",
            "HF_HUB_CACHE": str(run / "cache"),
        }.items():
            patched.setenv(name, value)
        snakemake(run, "evaluation", "weights")
    return run, made, tokens


@pytest.mark.slow
def test_the_model_is_the_published_one_to_the_bit(asked):
    run, made, tokens = asked
    for name, model in made.items():
        assert {path.name for path in (run / "results/training" / name).iterdir()} == {"model"}  # nothing was trained
        found = Rosalia.from_pretrained(run / f"results/training/{name}/model", torch.bfloat16)
        assert found.config.seg_id == tokens.seg == model.config.seg_id
        wanted = model.state_dict()
        assert found.state_dict().keys() == wanted.keys()
        assert all(torch.equal(value, wanted[key]) for key, value in found.state_dict().items())


@pytest.mark.slow
def test_answers_and_masks_are_those_of_the_model_itself(asked, tmp_path):
    run, made, tokens = asked
    lines = run / "results/dataset/default/test.jsonl"
    options = replace(InferenceOptions(**stage_options(parse_section(Settings, CHOSEN))["inference"]), dtype="float32")
    for name, model in made.items():
        model.save_pretrained(tmp_path / name)
        tokens.save(tmp_path / name)
        run_split(
            model=tmp_path / name, lines=lines, frames=sorted((run / "results/frames").glob("*.h5")),
            predictions=tmp_path / f"{name}.jsonl", prediction_masks=tmp_path / f"{name}.h5", options=options, attrs={},
            compute=Settings().compute.as_dict(),
        )  # fmt: skip
        there = run / f"results/inference/{name}"
        assert (there / "test.jsonl").read_bytes() == (tmp_path / f"{name}.jsonl").read_bytes()
        answers = [json.loads(line)["answer"] for line in (there / "test.jsonl").read_text().splitlines()]
        assert len(answers) == len(lines.read_text().splitlines())
        assert all(answer.startswith("[SEG]") for answer in answers)
        with h5py.File(there / "test.h5") as one, h5py.File(tmp_path / f"{name}.h5") as other:
            drawn, wanted = (np.unpackbits(file["mask"][:]) for file in (one, other))
        # sums are rounded otherwise with other numbers of threads: a pixel at the threshold may turn
        assert (drawn != wanted).sum() < 30  # of 147,456
        assert 0 < wanted.mean() < 1
    assert (run / "results/inference/lisa7b/test.h5").read_bytes() != (
        run / "results/inference/rosalia7b/test.h5"
    ).read_bytes()


@pytest.mark.slow
def test_the_tables_hold_both_beside_the_papers(asked):
    run, *_ = asked
    lines = [json.loads(line) for line in (run / "results/dataset/default/test.jsonl").read_text().splitlines()]
    beside = {"rosalia7b": None, "lisa7b": [8.3, 12.8, 0.7]}  # of Table 4
    for name, printed in beside.items():
        total = (
            read_table(run / f"results/evaluation/{name}/scores.tsv")
            .filter(pl.col("lesion") == "total")
            .row(0, named=True)
        )
        assert (total["positives"], total["negatives"]) == tuple(
            sum(line["seg"] is seg for line in lines) for seg in (True, False)
        )
        assert total["failed"] == 0
        if printed:
            assert [float(total[f"{measure}_paper"]) for measure in ("giou", "ciou", "n_acc")] == printed
        text = read_table(run / f"results/evaluation/{name}/text.tsv")
        assert {"authors", "strict"} <= set(text["rule"])
    table = read_table(run / "results/evaluation/comparison.tsv")
    ours = table.filter((pl.col("source") == "ours") & (pl.col("lesion") == "total"))
    assert ours["run"].to_list() == list(RUNS)
    assert {"LISA-7B", "ROSALIA"} <= set(table.filter(pl.col("source") == "paper")["run"])


@pytest.mark.slow
def test_where_they_come_from_is_written_down(asked):
    run, *_ = asked
    rows = read_table(run / "results/weights/manifest.tsv")
    files = {name: rows.filter(pl.col("artefact") == name)["file"].to_list() for name in ("lisa", "rosalia", "clip")}
    tokenizer = [f"lisa/{name}" for name in ("tokenizer.model", *catalogue.TOKENIZER_EXTRAS)]
    assert files["lisa"] == [
        "lisa/config.json",
        *tokenizer,
        *(f"lisa/pytorch_model-0000{n}-of-00003.bin" for n in (1, 2, 3)),
    ]
    assert files["rosalia"] == [
        "rosalia/config.json",
        *tokenizer,
        *(f"rosalia/model-0000{n}-of-00004.safetensors" for n in (1, 2, 3, 4)),
    ]
    assert files["clip"] == ["config.json", "model.safetensors"]
    assert "checkone/ROSALIA-7B-v1" in rows.filter(pl.col("artefact") == "rosalia")["source"][0]
    assert "sam" not in rows["artefact"]  # nobody asked for it


@pytest.mark.slow
def test_nothing_runs_again_and_the_placed_files_may_go(asked, dry_run):
    run, *_ = asked
    assert dry_run(run, "evaluation") == {}
    for path in (run / "weights").rglob("*.*"):
        if path.suffix in (".bin", ".safetensors"):
            path.unlink()
    assert dry_run(run, "evaluation") == {}
    shutil.rmtree(run / "weights")
    assert dry_run(run, "evaluation") == {}


# What is refused before any job.


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (
            {"runs": {"a": {"trained": False}}},
            ["training.runs.a", "weights names no model", "rosalia, lisa or lite"],
        ),
        (
            {"runs": {"a": {"weights": "rosalia"}}},
            ["training: runs.a.weights is 'rosalia', which the engine 'lite' cannot train", "trained to false"],
        ),
        ({"runs": {"a": {"weights": "llava"}}}, ["training.runs.a.weights is 'llava'"]),
    ],
)
def test_what_does_not_go_together_is_one_sentence(chosen, words):
    with pytest.raises(SettingsError) as told:
        settings.read({"training": chosen})
    assert all(word in str(told.value) for word in words), str(told.value)
    assert "\n" not in str(told.value)


def test_lisa_is_asked_for_its_text():
    with pytest.raises(SettingsError, match=r"inference.text is false, but training.runs.lisa7b asks LISA"):
        settings.read({"training": {"runs": RUNS}, "inference": {"text": False}})
    rosalia = {"rosalia7b": RUNS["rosalia7b"]}
    settings.read({"training": {"runs": rosalia}, "inference": {"text": False}})
    settings.read({"training": {"engine": "rosalia", "runs": {"more": {"weights": "rosalia"}}}})


def told(directory: Path, *targets: str) -> str:
    done = snakemake(directory, *targets, "--dry-run", check=False)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("cxr-ils: ")]
    return line


def test_missing_weights_are_told_before_any_job(tmp_path):
    write_settings(tmp_path, SLICE | {"training": {"runs": {"mine": RUNS["rosalia7b"]}}})
    text = told(tmp_path, "evaluation")
    assert text.startswith(
        "cxr-ils: training.runs.mine needs weights/rosalia/config.json, weights/lisa/tokenizer.model, "
    )
    assert "`hf download checkone/ROSALIA-7B-v1 --local-dir rosalia`" in text
    published.words(tmp_path / "weights/rosalia")  # its own tokenizer will do
    (tmp_path / "weights/rosalia/config.json").touch()
    for part in (1, 3):
        (tmp_path / f"weights/rosalia/model-0000{part}-of-00003.safetensors").touch()
    assert told(tmp_path, "evaluation").startswith(
        "cxr-ils: training.runs.mine needs weights/rosalia/model-00002-of-00003.safetensors, not downloaded yet: "
    )


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (["pytorch_model.bin"], ["pytorch_model.bin"]),
        (["pytorch_model-00002-of-00003.bin", "README.md"], [f"pytorch_model-0000{n}-of-00003.bin" for n in (1, 2, 3)]),
        (["model-1-of-2.safetensors", "consolidated.00.pth"], ["model-1-of-2.safetensors", "model-2-of-2.safetensors"]),
        ([], ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]),
    ],
)
def test_any_number_of_parts_is_found(tmp_path, there, wanted):
    published.words(tmp_path / "lisa")
    for name in there:
        (tmp_path / "lisa" / name).touch()
    paths = catalogue.list_placed_files(str(tmp_path))["lisa"]
    assert [Path(path).name for path in paths if "model-" in path or "model." in Path(path).name][
        -len(wanted) :
    ] == wanted
    assert list(catalogue.rule_params({}, str(tmp_path))["lisa"]["files"]) == [
        str(Path(path).relative_to(tmp_path)) for path in paths
    ]


@pytest.mark.parametrize("where", ["torch_dtype", "dtype"])
@pytest.mark.parametrize("named", ["float32", "float16"])
def test_a_number_type_named_by_a_configuration_is_not_the_models(tmp_path, where, named):
    """CLIP's config.json names float32, that of the tower in it perhaps another; the model is bfloat16 throughout."""
    published.words(tmp_path / "lisa")
    model = published.tiny(Tokens.prepare(published.TOKENIZER), 3)
    published.write(tmp_path / "lisa", model, "safetensors", 1)
    (tmp_path / "clip").mkdir()
    for name, content in published.clip_files(model).items():
        (tmp_path / "clip" / name).write_bytes(content)
    config = json.loads((tmp_path / "clip/config.json").read_text())
    for held in (config, config["vision_config"]):
        held.pop("torch_dtype", None)
        held[where] = named
    (tmp_path / "clip/config.json").write_text(json.dumps(config))
    run_untrained(model=str(tmp_path / "ours"), lisa=str(tmp_path / "lisa"), clip=str(tmp_path / "clip"))
    for dtype in (torch.bfloat16, torch.float32):
        found = Rosalia.from_pretrained(tmp_path / "ours", dtype)
        assert {value.dtype for value in found.parameters()} == {dtype}
        side = found.config.sam.vision_config.image_size
        pictures = torch.zeros(1, 3, 28, 28, dtype=dtype), torch.zeros(1, 3, side, side, dtype=dtype)
        views = found.encode(SimpleNamespace(clip=pictures[0], images=pictures[1]))
        assert views.features.dtype == views.embeddings.dtype == dtype
