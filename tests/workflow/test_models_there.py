"""A model that a setting names by a path is there, or stops the run before any job."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from cxr.base.errors import UserError
from cxr.nets.hub import is_downloaded
from cxr.workflow import params
from cxr.workflow.forecast import forecast
from cxr.workflow.models import is_path
from cxr.workflow.plan_vlm import VlmPlan
from cxr.workflow.settings import read
from cxr.workflow.snakemake_compat import Planned

GONE = "models/X"
GREEN = {"prompt": "green.txt", "model": GONE}
RUN = {"engine": "onevision", "lines": "radvlm:all", "trained": False, "model": GONE}
LANGUAGE = {
    "reports.llm.structuring.model": {"reports": {"engine": "vllm", "llm": {"structuring": {"model": GONE}}}},
    "reports.llm.mapping.model": {"reports": {"engine": "both", "llm": {"mapping": {"model": GONE}}}},
    "paraphrase.llm.model": {"paraphrase": {"engine": "vllm", "llm": {"model": GONE}}},
    "medground.queries.llm.model": {"medground": {"queries": {"engine": "vllm", "llm": {"model": GONE}}}},
    "medground.verification.llm.model": {"medground": {"verification": {"judge": "vllm", "llm": {"model": GONE}}}},
    "radvlm.llm.model": {"radvlm": {"filtered": {"engine": "both"}, "llm": {"model": GONE}}},
    "radvlm.conversations.test_llm.model": {
        "radvlm": {"conversations": {"engine": "vllm", "test_llm": {"model": GONE}}}
    },
    "radvlm.evaluation.llm.model": {"radvlm": {"evaluation": {"judge": "vllm", "llm": {"model": GONE}}}},
    "radvlm.evaluation.green.model": {
        "radvlm": {"evaluation": {"annotators": ["green"], "report_metrics": ["green"], "green": GREEN}}
    },
}
"""{key of a language model: settings that name it}."""
OTHERS = {
    "vlm.tuning.runs.r.model": {"vlm": {"tuning": {"runs": {"r": RUN}}}},
    "vlm.tuning.onevision.model": {
        "vlm": {"tuning": {"runs": {"r": RUN | {"model": ""}}, "onevision": {"model": GONE}}}
    },
    "radvlm.chexbert.model": {"radvlm": {"sources": {"labels": "chexbert"}, "chexbert": {"model": GONE}}},
    "radvlm.evaluation.bertscore.model": {
        "radvlm": {
            "evaluation": {"annotators": ["bertscore"], "report_metrics": ["bertscore"], "bertscore": {"model": GONE}}
        }
    },
    "radvlm.evaluation.radgraph.encoder": {
        "radvlm": {
            "evaluation": {
                "annotators": ["radgraph"], "report_metrics": ["radgraph_f1"],
                "radgraph": {"model": "r", "encoder": GONE},
            }
        }
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()


def test_conversations_of_train_use_the_shared_model():
    radvlm = {"llm": {"model": GONE}, "conversations": {"engine": "vllm", "test_llm": {"model": "a/b"}}}
    with pytest.raises(UserError, match=r"^radvlm\.llm\.model: there is no folder"):
        params.check_files(read({"radvlm": radvlm}), "")


@pytest.mark.parametrize(("key", "config"), [*LANGUAGE.items(), *OTHERS.items()])
def test_a_path_without_a_folder_is_one_sentence(key, config):
    with pytest.raises(UserError) as caught:
        params.check_files(read(config), "")
    assert str(caught.value) == f"{key}: there is no folder '{GONE}': correct the path"
    Path(GONE).mkdir()
    params.check_files(read(config), "")


@pytest.mark.parametrize("config", LANGUAGE.values(), ids=LANGUAGE)
def test_the_model_of_a_server_is_not_looked_for(config):
    params.check_files(read(config | {"llm": {"transport": "server"}}), "")


@pytest.mark.parametrize("key", [*LANGUAGE, *OTHERS])
def test_the_model_of_an_engine_that_is_not_chosen_is_not_looked_for(key):
    config = (LANGUAGE | OTHERS)[key]
    for choice in ("engine", "judge", "annotators", "labels", "runs"):
        config = without(config, choice)
    params.check_files(read(config), "")


def without(config: dict, name: str) -> dict:
    """Return settings without the key ``name``."""
    return {
        one: without(value, name) if isinstance(value, dict) else value for one, value in config.items() if one != name
    }


@pytest.mark.parametrize("model", ["/m", "./m", "../m", "~/m", ".m/n", "a/b/c", "models/X", "models/"])
def test_what_begins_as_a_path_or_with_a_folder_that_is_here_is_a_path(model):
    assert is_path(model)


@pytest.mark.parametrize("model", ["", "models", "bert-base-uncased", "llava-hf/llava-onevision-qwen2-7b-si-hf"])
def test_what_may_be_a_name_on_the_hub_is_none(model):
    assert not is_path(model)


def test_the_plan_names_a_model_of_the_hub_that_nobody_downloaded(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    config = read({"vlm": {"tuning": {"runs": {"r": RUN | {"model": "makers/7B", "revision": "c0ffee"}}}}})
    plan, there = (
        SimpleNamespace(vlm=VlmPlan(config.vlm, "cpu", 0, ["all"])),
        tmp_path / "hub/models--makers--7B/snapshots",
    )
    jobs = [Planned("vlm_answers", "vlm", {}, ["x"], {"run": "r"}, 0, False)]
    (sentence,) = forecast._absent_models(plan, jobs)
    assert sentence.startswith("vlm.tuning.runs.r: the model makers/7B is not on this machine")
    assert "`hf download makers/7B --revision c0ffee`" in sentence
    assert not [*forecast._absent_models(plan, [])]  # no job of this run
    (there / "0ther").mkdir(parents=True)
    assert [*forecast._absent_models(plan, jobs)] == [sentence]
    (there / "c0ffee").mkdir()
    assert not [*forecast._absent_models(plan, jobs)]


@pytest.mark.parametrize("home", ["HF_HOME", "XDG_CACHE_HOME"])
def test_the_cache_of_the_hub_is_where_its_package_puts_it(tmp_path, monkeypatch, home):
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.setenv(home, str(tmp_path))
    folder = tmp_path / ("hub" if home == "HF_HOME" else "huggingface/hub") / "models--a--b"
    assert not is_downloaded("a/b", "")
    (folder / "snapshots/123").mkdir(parents=True)
    assert not is_downloaded("a/b", "")
    assert is_downloaded("a/b", "123")
    (folder / "refs").mkdir()
    (folder / "refs/main").write_text("123")
    assert is_downloaded("a/b", "")
