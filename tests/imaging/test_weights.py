"""Weights: downloaded from a hub (a local one) or converted from files placed by hand, and checked to the byte."""

import hashlib
import json
import os
import re
import shutil
import textwrap
from dataclasses import replace
from functools import reduce
from pathlib import Path

import huggingface_hub.constants as hub_constants
import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save

import parsed
from conftest import ROOT, SLICE, snakemake, write_settings
from cxr.base.engines import engine_names
from cxr.base.errors import UserError
from cxr.base.tables import read_table
from cxr.imaging.weights import catalogue, hub, manifest, placed, state_dict
from cxr.imaging.weights.manifest import WeightsOptions
from cxr.radvlm.evaluation import annotate_radgraph
from cxr.workflow import settings
from cxr.workflow.engine_files import find_package, read_declaration
from cxr.workflow.params import ENGINE_STAGES
from cxr.workflow.settings import document
from declared_tables import tables_of
from fake_hub import serve

ATTRS = {"code_digest": "0123456789abcdef"}
UNET = save({"conv_in.weight": torch.arange(12.0).reshape(3, 4)})
REPOSITORIES = {
    "microsoft/radedit": {
        "unet/config.json": b'{"_class_name": "UNet2DConditionModel"}',
        "unet/diffusion_pytorch_model.safetensors": UNET,
        "pipeline.py": b"raise SystemExit",
    },
    "stabilityai/sdxl-vae": {
        "config.json": b"{}",
        "diffusion_pytorch_model.safetensors": save({"a": torch.ones(2)}),
    },
    "microsoft/BiomedVLP-BioViL-T": {
        "config.json": b"{}",
        "model.safetensors": save({"b": torch.ones(3)}),
        "special_tokens_map.json": b"{}",
        "tokenizer_config.json": b"{}",
        "vocab.txt": b"[PAD]\n",
    },
}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def options(artefact: str, **changes: object) -> WeightsOptions:
    return replace(WeightsOptions(**catalogue.rule_params({})[artefact]), **changes)


@pytest.fixture
def fake_hub(tmp_path, monkeypatch):
    """A local stand-in for the hub, with an empty cache; yields the mutable (repositories, gated)."""
    repositories, gated = {name: dict(files) for name, files in REPOSITORIES.items()}, []
    with serve(repositories, gated) as address:
        for name, value in {
            "ENDPOINT": address,
            "HUGGINGFACE_CO_URL_TEMPLATE": address + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(tmp_path / "cache"),
            "HF_HUB_OFFLINE": False,
        }.items():
            monkeypatch.setattr(hub_constants, name, value)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield repositories, gated


def fetched(folder: Path, chosen: WeightsOptions) -> tuple[Path, dict]:
    target, manifest = folder / chosen.artefact, folder / f"{chosen.artefact}.json"
    hub.run(weights=str(target), manifest=str(manifest), options=chosen, attrs=ATTRS)
    return target, json.loads(manifest.read_text())


def sentence(caught) -> str:
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_what_the_hub_holds_is_copied_and_nothing_else(fake_hub, tmp_path):
    target, manifest = fetched(tmp_path, options("radedit"))
    files = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert files == {name: REPOSITORIES["microsoft/radedit"][name] for name in options("radedit").files}
    assert not list((tmp_path / "cache").rglob("*.py"))
    config = REPOSITORIES["microsoft/radedit"]["unet/config.json"]
    rows = [
        {"file": "unet/config.json", "bytes": len(config), "sha256": sha256(config)},
        {"file": "unet/diffusion_pytorch_model.safetensors", "bytes": len(UNET), "sha256": sha256(UNET)},
    ]
    assert manifest == {
        "artefact": "radedit",
        "used_by": "anomaly.radedit",
        "licence": "RadEdit's own, research only (accepted on its page)",
        "source": "huggingface.co/microsoft/radedit",
        "revision": "e8ebd31396ff8553c34084b98b5defb8ebea2817",
        "code_digest": ATTRS["code_digest"],
        "published": rows,
        "used": rows,
        "facts": {},
    }


def test_the_cache_will_do_without_network(fake_hub, tmp_path, monkeypatch):
    first = fetched(tmp_path / "first", options("radedit"))
    monkeypatch.setattr(hub_constants, "HF_HUB_OFFLINE", True)
    fake_hub[0].clear()
    assert fetched(tmp_path / "second", options("radedit"))[1] == first[1]


def test_a_pickle_in_a_safetensors_stead_is_converted(fake_hub, tmp_path):
    files = fake_hub[0]["microsoft/BiomedVLP-BioViL-T"]
    del files["model.safetensors"]
    tied = torch.arange(6.0)
    torch.save({"embedding": tied, "decoder": tied, "half": torch.ones(2, dtype=torch.float16)}, tmp_path / "b.bin")
    files["pytorch_model.bin"] = (tmp_path / "b.bin").read_bytes()
    chosen = options("biovil_t", files=dict.fromkeys(options("biovil_t").files))
    target, manifest = fetched(tmp_path, chosen)
    made = load_file(target / "model.safetensors")
    assert {name: (value.dtype, value.tolist()) for name, value in made.items()} == {
        "embedding": (torch.float32, [0, 1, 2, 3, 4, 5]),
        "decoder": (torch.float32, [0, 1, 2, 3, 4, 5]),
        "half": (torch.float16, [1, 1]),
    }
    assert [row["file"] for row in manifest["published"]][1] == "pytorch_model.bin"
    assert [row["file"] for row in manifest["used"]][1] == "model.safetensors"
    assert not (target / "pytorch_model.bin").exists()


def _gate(repositories, gated):
    gated.append("microsoft/radedit")


def _take_away(repositories, gated):
    del repositories["microsoft/radedit"]


def _rename(repositories, gated):
    del repositories["microsoft/radedit"]["unet/config.json"]


def _cut(repositories, gated):
    repositories["microsoft/radedit"]["unet/diffusion_pytorch_model.safetensors"] = UNET[:-1]


def _page(repositories, gated):
    repositories["microsoft/radedit"]["unet/config.json"] = b"\n<!DOCTYPE html><html></html>"


def _no_json(repositories, gated):
    repositories["microsoft/radedit"]["unet/config.json"] = b"{"


def _empty(repositories, gated):
    repositories["microsoft/radedit"]["unet/config.json"] = b""


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_gate, ["microsoft/radedit is gated", "https://huggingface.co/microsoft/radedit", "HF_TOKEN"]),
        (_take_away, ["no microsoft/radedit at revision e8ebd313", "hf auth login"]),
        (_rename, ["microsoft/radedit has no unet/config.json", "e8ebd313"]),
        (_cut, ["diffusion_pytorch_model.safetensors is damaged", "snakemake weights_radedit"]),
        (_page, ["unet/config.json is a web page"]),
        (_no_json, ["unet/config.json is not a JSON file"]),
        (_empty, ["unet/config.json is empty"]),
    ],
)
def test_what_the_hub_cannot_give_is_one_sentence(fake_hub, tmp_path, damage, words):
    damage(*fake_hub)
    with pytest.raises(UserError) as caught:
        fetched(tmp_path, options("radedit"))
    assert all(word in sentence(caught) for word in words)
    assert not (tmp_path / "radedit.json").exists()


def test_no_network_and_no_cache_is_one_sentence(fake_hub, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError) as caught:
        fetched(tmp_path, options("radedit"))
    assert "unet/config.json of microsoft/radedit is not in this machine's Hugging Face cache" in sentence(caught)
    assert "machine with network" in sentence(caught)


def test_another_file_than_the_pinned_one_is_refused(fake_hub, tmp_path):
    with pytest.raises(UserError) as caught:
        fetched(tmp_path, options("sdxl_vae"))
    found = sha256(REPOSITORIES["stabilityai/sdxl-vae"]["diffusion_pytorch_model.safetensors"])
    pinned = "1598f3d24932bcfe6634e8b618ea1e30ab1d57f5aad13a6d2de446d2199f2341"
    assert f"has sha256 {found} and not {pinned}" in sentence(caught)
    assert f"weights.sha256: {{sdxl_vae/diffusion_pytorch_model.safetensors: '{found}'}}" in sentence(caught)


def convert(folder: Path, source: Path, **changes: object) -> Path:
    """Convert a file like the rule hybridgnet; its size is not checked unless ``changes`` requires it."""
    made = folder / "made.safetensors"
    chosen = options("hybridgnet", **{"tensors": None, "values": None} | changes)
    placed.run(
        sources=[str(source)], weights=[str(made)], manifest=str(folder / "made.json"), options=chosen, attrs=ATTRS
    )
    return made


@pytest.mark.parametrize("wrapped", [lambda state: state, lambda state: {"epoch": 3, "model": state}])
@pytest.mark.parametrize("legacy", [False, True])
def test_a_state_dict_keeps_every_bit(tmp_path, wrapped, legacy):
    state = {"module.a": torch.randn(3, 4, generator=torch.manual_seed(0)).t(), "b": torch.tensor([1.5, float("nan")])}
    torch.save(wrapped(state), tmp_path / "net.pt", _use_new_zipfile_serialization=not legacy)
    made = load_file(convert(tmp_path, tmp_path / "net.pt"))
    assert made.keys() == {"a", "b"}
    assert made["a"].shape == (4, 3)
    assert made["a"].numpy().tobytes() == state["module.a"].contiguous().numpy().tobytes()
    assert made["b"].numpy().tobytes() == state["b"].numpy().tobytes()
    manifest = json.loads((tmp_path / "made.json").read_text())
    assert manifest["facts"] == {"hybridgnet.pt": {"tensors": 2, "values": 14}}
    assert manifest["published"][0]["sha256"] == sha256((tmp_path / "net.pt").read_bytes())
    assert manifest["used"][0]["sha256"] == sha256((tmp_path / "made.safetensors").read_bytes())
    assert str(tmp_path) not in (tmp_path / "made.json").read_text()


class Attack:
    """A pickle that runs a command when it is read."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_a_pickle_that_runs_a_command_runs_nothing(tmp_path):
    torch.save({"a": torch.ones(2), "b": Attack(tmp_path / "marker")}, tmp_path / "net.pt")
    with pytest.raises(UserError) as caught:
        convert(tmp_path, tmp_path / "net.pt")
    assert "refers to posix.system, which no network needs but an attack may use" in sentence(caught)
    assert not (tmp_path / "marker").exists()


def _whole(folder: Path) -> bytes:
    torch.save({"a": torch.ones(4096)}, folder / "whole.pt")
    return (folder / "whole.pt").read_bytes()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda folder: _whole(folder)[:3000], "cannot be used: it is not a complete PyTorch checkpoint"),
        (lambda folder: _whole(folder)[: len(_whole(folder)) // 2], "cannot be used: it is not a complete PyTorch"),
        (lambda folder: b"", "is empty"),
        (lambda folder: b"<html><body>Quota exceeded</body></html>", "is a web page"),
        (lambda folder: b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
        (lambda folder: b"not a checkpoint at all", "cannot be used: it is not a complete PyTorch checkpoint"),
        (lambda folder: UNET[:-1], "cannot be used: it is not a complete safetensors file"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_one_sentence(tmp_path, content, words):
    (tmp_path / "net.pt").write_bytes(content(tmp_path))
    with pytest.raises(UserError) as caught:
        convert(tmp_path, tmp_path / "net.pt")
    assert f"{tmp_path / 'net.pt'} {words}" in sentence(caught)
    assert "delete it and" in sentence(caught)
    assert not list(tmp_path.glob("*made*"))


@pytest.mark.parametrize("held", [{}, {"epoch": 3}, [torch.ones(2)]])
def test_a_checkpoint_without_tensors_is_one_sentence(tmp_path, held):
    torch.save(held, tmp_path / "net.pt")
    with pytest.raises(UserError, match="holds no state dict"):
        convert(tmp_path, tmp_path / "net.pt")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_damaged_byte_is_one_sentence(tmp_path):
    """Torch raises many kinds of errors for a wrong byte, some of which do not sound like a file's fault."""
    random = np.random.default_rng(0)
    for legacy in (False, True):
        state = {"model": {f"module.{number}.weight": torch.ones(2, 3) for number in range(3)}}
        torch.save(state, tmp_path / "net.pt", _use_new_zipfile_serialization=not legacy)
        whole, told = (tmp_path / "net.pt").read_bytes(), []
        for _ in range(300):
            content = bytearray(whole)
            content[random.integers(len(whole))] = random.integers(256)
            (tmp_path / "net.pt").write_bytes(content)
            try:
                state_dict.read_state(tmp_path / "net.pt")
            except UserError as error:
                told.append(str(error))
        assert len(told) > 50
        assert all(text.startswith(f"{tmp_path / 'net.pt'} ") and "\n" not in text for text in told)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.eye(3).to_sparse(), "cannot be used: its tensor a is not a dense tensor of real numbers"),
        (torch.empty(2, device="meta"), "cannot be used: its tensor a is not a dense tensor of real numbers"),
        (torch.zeros(2, dtype=torch.complex128), "cannot be used: its tensor a is not a dense tensor of real numbers"),
        (torch.zeros(1), "holds the tensor a with and without a prefix"),
    ],
)
def test_tensors_of_another_kind_are_one_sentence(tmp_path, value, words):
    torch.save({"module.a": torch.ones(1), "a": value}, tmp_path / "net.pt")
    with pytest.raises(UserError) as caught:
        convert(tmp_path, tmp_path / "net.pt")
    assert f"{tmp_path / 'net.pt'} {words}" in sentence(caught)


def test_another_net_is_told_by_its_size(tmp_path):
    torch.save({"a": torch.ones(2, 3)}, tmp_path / "net.pt")
    convert(tmp_path, tmp_path / "net.pt", tensors=1, values=6)
    with pytest.raises(UserError, match="holds 1 tensors of 6 values and not 1 of 7, so it is another net"):
        convert(tmp_path, tmp_path / "net.pt", tensors=1, values=7)


def test_a_pin_of_the_settings_wins():
    pins = {"cxas.pth": "0" * 64, "sdxl_vae/diffusion_pytorch_model.safetensors": "1" * 64}
    params = catalogue.rule_params(pins)
    assert params["cxas"]["files"] == {"cxas.pth": "0" * 64}
    assert params["sdxl_vae"]["files"]["diffusion_pytorch_model.safetensors"] == "1" * 64
    assert params["radedit"] == catalogue.rule_params({})["radedit"]
    with pytest.raises(UserError, match=r"weights.sha256 has an unknown file 'cxas.pt': .*cxas.pth"):
        catalogue.rule_params({"cxas.pt": "0" * 64})


def test_every_entry_says_how_it_is_had():
    for artefact, entry in (catalogue.read_entries() | catalogue.read_entries(True)).items():
        wanted = {"what", "source", "revision", "files", "size", "licence", "citation", "gated"}
        if "setting" in entry:
            assert wanted | {"setting", "folder"} <= entry.keys() <= wanted | {"setting", "folder", "repository"}
            assert entry["revision"] is None, artefact
        else:
            wanted |= {"used_by"}
            converted = {"get", "tensors", "values", "folder", "tokenizer", "parts", "dropped", "float32"}
            optional = {"repository"} if "repository" in entry else converted
            assert wanted <= entry.keys() <= wanted | optional, artefact
            assert ("repository" in entry) == bool(re.fullmatch("[0-9a-f]{40}", entry["revision"] or "")), artefact
            assert "repository" in entry or entry["get"], artefact
        assert all(value is None or re.fullmatch("[0-9a-f]{64}", value) for value in entry["files"].values())


def test_the_docs_tell_how_each_is_had():
    text = (ROOT / "docs/how-to/models.md").read_text(encoding="utf-8")
    blocks = [textwrap.dedent(block) for block in re.findall(r"```yaml\n(.*?)```", text, flags=re.S)]
    assert len(blocks) >= 3
    for block in blocks:
        chosen = settings.read(yaml.safe_load(block.replace("<64 hex digits>", "0" * 64)))
        catalogue.rule_params(chosen.weights.sha256)
    for artefact, entry in catalogue.read_entries().items():
        names = [entry["repository"]] if "repository" in entry else [f"{file}`" for file in entry["files"]]
        chosen = entry["used_by"].split(".")[1]
        assert all(name in text for name in names), artefact
        keys = ("engine: ", "classifier: ", "features: [", "labels: ")
        assert any(f"{key}{chosen}" in text for key in keys), artefact


def test_the_docs_table_says_what_the_entries_of_named_models_say():
    text = (ROOT / "docs/how-to/models.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    for artefact, entry in catalogue.read_entries(True).items():
        fetched = f"hf download {entry['repository']}`" if "repository" in entry else f"{entry['folder']}.tar.gz`"
        (row,) = [row for row in rows if len(row) == 5 and fetched in row[2]]
        assert row[3:] == [entry["size"], entry["licence"]], artefact


RUN = "vlm.tuning.runs.mine.model"
LLAVA = "llava-hf/llava-onevision-qwen2-7b-si-hf"
DISTILBERT = "radvlm.evaluation.bertscore.model"


def test_each_named_model_is_of_a_setting_and_of_files_that_its_reader_knows():
    keys = [key for key, *_ in document.reference_rows()]
    chosen = settings.read({}).as_dict()
    for artefact, entry in catalogue.read_entries(True).items():
        assert entry["setting"] in keys, artefact
        if "repository" in entry and "<name>" not in entry["setting"]:
            default = reduce(lambda section, key: section[key], entry["setting"].split("."), chosen)
            assert default == entry["repository"]
    assert set(catalogue.read_entries(True)["radgraph"]["files"]) == set(annotate_radgraph.PLACED)
    assert not catalogue.read_entries(True).keys() & catalogue.rule_params({}).keys()


def test_a_model_is_its_entrys_by_repository_or_by_the_name_of_its_folder(tmp_path):
    """A repository or folder of another name is a model of one's own, and so is one that another setting names."""
    folder = tmp_path / "distilbert-base-uncased"
    folder.mkdir()
    for name in ("config.json", "model-00001-of-00002.safetensors", "tokenizer.json", "vocab.txt"):
        (folder / name).touch()
    found = catalogue.plan_models({DISTILBERT: (str(tmp_path), ""), RUN: ("mine/RadVLM", "")}, {})
    assert found == catalogue.plan_models({RUN: (str(folder), ""), DISTILBERT: (LLAVA, "")}, {}) == {}
    with pytest.raises(UserError, match=r"^radvlm.evaluation.bertscore.model: there is no file .*00002-of-00002"):
        catalogue.plan_models({DISTILBERT: (str(folder), "")}, {})
    (folder / "model-00002-of-00002.safetensors").touch()
    made = catalogue.plan_models({DISTILBERT: (str(folder), "main")}, {})["distilbert"]
    parts = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    assert made["sources"] == [str(folder / name) for name in ("config.json", "tokenizer.json", "vocab.txt", *parts)]
    assert (made["options"]["repository"], made["options"]["revision"]) == (None, None)


def test_runs_of_one_model_share_a_manifest_and_another_revision_has_its_own():
    used = {
        f"vlm.tuning.runs.{name}.model": (LLAVA, revision)
        for name, revision in {"a": "", "b": "1" * 40, "c": ""}.items()
    }
    found = catalogue.plan_models(used, {"llava_onevision/config.json": "0" * 64})
    assert {name: one["options"]["revision"] for name, one in found.items()} == {
        "llava_onevision": None,
        "llava_onevision-2": "1" * 40,
    }
    assert {one["options"]["files"]["config.json"] for one in found.values()} == {"0" * 64}
    with pytest.raises(UserError, match=r"has an unknown file 'llava_onevision/model\.safetensors'"):
        catalogue.rule_params({"llava_onevision/model.safetensors": "0" * 64})


def test_prose_of_an_entry_is_no_param_of_its_rule():
    made = catalogue.plan_models({RUN: (LLAVA, "")}, {})["llava_onevision"]["options"]
    prose = {"what", "size", "citation", "gated", "get"}
    assert not prose & (made.keys() | catalogue.rule_params({})["cxas"].keys())


def noted(folder: Path, found: dict) -> dict:
    options = WeightsOptions(**found["options"])
    manifest.note_model(sources=found["sources"], manifest=str(folder / "made.json"), options=options, attrs=ATTRS)
    return json.loads((folder / "made.json").read_text())


def test_a_model_of_the_hubs_cache_is_noted_with_its_commit_and_checked(tmp_path, monkeypatch):
    cache, commit = tmp_path / "models--distilbert--distilbert-base-uncased", "c" * 40
    folder = cache / "snapshots" / commit
    folder.mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs/main").write_text(commit)
    held = {"config.json": b"{}", "model.safetensors": UNET, "tokenizer.json": b"{}", "vocab.txt": b"[PAD]\n"}
    for name, content in held.items():
        (folder / name).write_bytes(content)
    monkeypatch.setattr(hub_constants, "HF_HUB_CACHE", str(tmp_path))
    used = {DISTILBERT: ("distilbert/distilbert-base-uncased", "")}
    with pytest.raises(UserError) as caught:
        noted(tmp_path, catalogue.plan_models(used, {})["distilbert"])
    assert f"weights.sha256: {{distilbert/model.safetensors: '{sha256(UNET)}'}}" in sentence(caught)
    found = catalogue.plan_models(used, {"distilbert/model.safetensors": sha256(UNET)})["distilbert"]
    made = noted(tmp_path, found)
    rows = [{"file": name, "bytes": len(text), "sha256": sha256(text)} for name, text in held.items()]
    told = {
        "revision": commit,
        "licence": "Apache-2.0 (its model card)",
        "used_by": DISTILBERT,
        "artefact": "distilbert",
    }
    assert made["published"] == made["used"] == rows
    assert made.items() >= told.items()
    shutil.rmtree(cache)
    with pytest.raises(
        UserError, match=r"run `hf download distilbert/distilbert-base-uncased` .*, or give the model's folder"
    ):
        noted(tmp_path, found)


@pytest.mark.slow
def test_a_models_folder_goes_through_the_workflow(tmp_path):
    folder = tmp_path / "models/RadVLM"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(UNET)
    run = {"engine": "onevision", "model": "models/RadVLM", "trained": False, "lines": "radvlm:all"}
    radvlm = {"evaluation": {"runs": ["theirs"]}}
    snakemake(
        write_settings(tmp_path, SLICE | {"vlm": {"tuning": {"runs": {"theirs": run}}}, "radvlm": radvlm}), "weights"
    )
    table = read_table(tmp_path / "results/weights/manifest.tsv")
    assert table["file"].to_list() == ["config.json", "model.safetensors"]
    assert table["sha256"].to_list() == [sha256(b"{}"), sha256(UNET)]
    assert set(table["licence"]) == {"PhysioNet's credentialed access; read its page"}
    assert set(table["used_by"]) == {"vlm.tuning.runs.<name>.model"}


def test_a_rule_makes_each_weight_that_an_engine_reads():
    made = parsed.rules()
    paths = {path for rule in made.values() for path in rule.output}
    for stage in ENGINE_STAGES:
        for engine in engine_names(find_package(stage)):
            files = read_declaration(find_package(stage), engine, "INPUTS", {})
            for artefact in catalogue.select_converted({stage: files}):
                assert artefact in catalogue.read_entries()
                assert f"weights_{artefact}" in made
            assert {path for path in files.values() if path.startswith("results/weights/")} <= paths


def placed_net(directory: Path) -> Path:
    """Write weights/hybridgnet.pt with the size of the published net, but other tensors."""
    (directory / "weights").mkdir(parents=True)
    state = {f"t{number}": torch.zeros(1, dtype=torch.bfloat16) for number in range(106)}
    state["rest"] = torch.zeros(17_511_090 - 106, dtype=torch.bfloat16)
    torch.save(state, directory / "weights/hybridgnet.pt")
    return directory / "weights/hybridgnet.pt"


HYBRIDGNET = SLICE | {"organs": {"engine": "hybridgnet"}}


def weights_jobs(jobs: dict[str, int]) -> dict[str, int]:
    return {name: number for name, number in jobs.items() if name.startswith("weights")}


@pytest.mark.slow
def test_the_placed_file_goes_through_the_workflow(tmp_path, dry_run):
    source = placed_net(write_settings(tmp_path, HYBRIDGNET))
    snakemake(tmp_path, "weights")
    assert tables_of(tmp_path)["results/weights/manifest.tsv"] == ""
    row = read_table(tmp_path / "results/weights/manifest.tsv").row(0, named=True)
    assert (row["artefact"], row["file"], row["bytes"]) == ("hybridgnet", "hybridgnet.pt", source.stat().st_size)
    assert row["sha256"] == sha256(source.read_bytes())
    assert "GPL-3.0" in row["licence"]
    assert len(load_file(tmp_path / "results/weights/hybridgnet.safetensors")) == 107
    source.touch()  # the same file with another time is not converted again, a new one is
    assert weights_jobs(dry_run(tmp_path, "organs")) == {}
    source.write_bytes(source.read_bytes() + b"\n")
    assert weights_jobs(dry_run(tmp_path, "organs")) == {"weights_hybridgnet": 1}
    source.unlink()  # what was made of it is enough
    assert weights_jobs(dry_run(tmp_path, "organs")) == {}


def test_a_missing_placed_file_stops_before_any_job(tmp_path):
    settings = HYBRIDGNET | {"weights": {"folder": "elsewhere"}}
    done = snakemake(write_settings(tmp_path, settings), "organs", check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "cxr-ils: organs.engine 'hybridgnet' needs elsewhere/hybridgnet.pt, not downloaded yet: download "
        "weights/weights.pt of the Hugging Face Space ngaggion/Chest-x-ray-HybridGNet-Segmentation to that place, "
        "or set weights.folder (docs/how-to/models.md)"
    )
    assert not (tmp_path / "results").exists()


def test_a_missing_fold_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    for fold in (0, 1, 2, 4):
        (tmp_path / f"mine/scaled_yolo_fold_{fold}.pt").touch()
    with pytest.raises(UserError) as caught:
        catalogue.check_placed(["scaled_yolov4"], "mine")
    assert sentence(caught).startswith(
        "boxes.engine 'scaled_yolov4' needs mine/scaled_yolo_fold_3.pt, not downloaded yet: "
    )
    (tmp_path / "mine/scaled_yolo_fold_3.pt").touch()
    catalogue.check_placed(["scaled_yolov4", "radedit"], "mine")


def test_the_lite_engines_read_no_weights(workflow_run):
    assert not (workflow_run / "results/weights").exists()


@pytest.mark.slow
def test_the_hubs_files_come_through_the_workflow(tmp_path, monkeypatch):
    names = ["weights_radedit", "weights_biovil_t"]
    pins = {"biovil_t/model.safetensors": sha256(REPOSITORIES["microsoft/BiomedVLP-BioViL-T"]["model.safetensors"])}
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    first, second = (write_settings(tmp_path / name, {"weights": {"sha256": pins}}) for name in ("first", "second"))
    with serve(REPOSITORIES) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        snakemake(first, *names)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    snakemake(second, *names)

    def made(directory: Path) -> dict[str, bytes]:
        folder = directory / "results/weights"
        files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".snakemake_timestamp")
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}

    assert made(second) == made(first)
    assert made(first)["radedit/unet/diffusion_pytorch_model.safetensors"] == UNET
    assert made(first)["biovil_t/vocab.txt"] == b"[PAD]\n"
    assert len(made(first)) == 9
