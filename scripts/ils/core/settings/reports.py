"""Settings of the reports: the engine, and the language models of the paper's."""

from typing import Literal

from pydantic import model_validator

from ils.core.settings.base import PAPER, Address, Section, Share, key


class _LanguageModel(Section):
    """One language model, pinned, and how long its answers may be."""

    @model_validator(mode="after")
    def _answer_fits(self) -> "_LanguageModel":
        if self.max_tokens >= self.context:
            raise ValueError(f"max_tokens is {self.max_tokens}, which fills context ({self.context}): lower it")
        return self


def _model(name: str):
    return key(name, "Hugging Face id, or the folder of the model.", source=PAPER, min_length=1)


def _revision(commit: str):
    return key(commit, "Commit of the model's repository; empty for a folder.")


def _context():
    return key(16384, "Longest prompt and answer together.", unit="tokens", ge=1024, le=1_000_000)


def _max_tokens(tokens: int):
    return key(tokens, "Longest answer.", unit="tokens", ge=16, le=1_000_000)


class Structuring(_LanguageModel):
    """The model that turns a section into findings (Figure 9)."""

    model: str = _model("mistralai/Mistral-Small-3.1-24B-Instruct-2503")
    revision: str = _revision("68faf511d618ef198fef186659617cfd2eb8e33a")
    context: int = _context()
    max_tokens: int = _max_tokens(4096)


class Mapping(_LanguageModel):
    """The model that maps places to categories and zone labels (Figure 10)."""

    model: str = _model("google/medgemma-27b-text-it")
    revision: str = _revision("6b08c481126ff65a9b8fa5ab4d691b152b8edb5d")
    context: int = _context()
    max_tokens: int = _max_tokens(512)


class Execution(Section):
    """How the language models are run, not what they are asked: a change re-runs nothing."""

    gpus: int = key(1, "GPUs of one job; the model is split over them (transport offline).", unit="GPUs", ge=0, le=64)
    gpu_memory: Share = key(0.9, "Share of each GPU's memory to use (transport offline).")
    eager: bool = key(False, "No compiled graphs: a slower answer, a faster start (transport offline).")
    server: Address = key(
        "http://localhost:8000/v1", "Address of the running server (transport server); its key: OPENAI_API_KEY."
    )
    mapping_server: Address = key("", "Address of the mapping model's server; empty for the same server.")
    requests: int = key(32, "Requests at a time (transport server).", unit="requests", ge=1, le=1024)
    timeout_s: int = key(600, "How long one request may take (transport server).", unit="s", ge=1)


class Llm(Section):
    """The paper's engine: a language model structures the text, another maps the places."""

    transport: Literal["offline", "server"] = key(
        "offline", "offline: vLLM inside the job; server: a running OpenAI-compatible server."
    )
    structuring: Structuring = key(Structuring, "From the section's text to findings (Figure 9).", source=PAPER)
    mapping: Mapping = key(Mapping, "From places to categories and zone labels (Figure 10).", source=PAPER)
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = key("auto", "Number type of the weights.")
    temperature: float = key(0.0, "Temperature of the first answer; 0 is greedy.", ge=0, le=2)
    retries: int = key(2, "How often an answer that breaks schema or logic is asked for again.", ge=0, le=20)
    retry_temperature: float = key(0.5, "Temperature of those answers: greedy would repeat itself.", ge=0, le=2)
    execution: Execution = key(Execution, "How the models are run.")


class Reports(Section):
    """From report text to findings."""

    engine: Literal["rules", "vllm", "both"] = key(
        "rules",
        "rules: spaCy and the lexicon in resources/lexicon, no download; vllm: the paper's language models; both: "
        "vllm, and a table of where the rules agree with it.",
    )
    section_overrides: bool = key(True, "Apply the official per-study corrections of MIMIC-CXR's section code.")
    effusion_without_side: Literal["both_bases", "none"] = key(
        "both_bases", "Where an effusion without a side is looked for (after Fig. 11)."
    )
    llm: Llm = key(Llm, "The language models of the engine vllm.")
