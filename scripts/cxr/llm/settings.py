"""Settings of language models: transport and resources, and the model of a stage."""

from typing import Literal

from cxr.base.settings import PAPER, Address, Section, Share, key, redefine


class LlmSettings(Section):
    """Settings of how language models run. Only ``transport`` and ``context`` affect the answers."""

    transport: Literal["offline", "server"] = key(
        "offline",
        "Where models run. offline: in vLLM inside the job; server: on an OpenAI-compatible server. A change repeats "
        "all requests.",
    )
    context: int = key(
        16384, "Maximum length of prompt plus answer. A change repeats requests.", unit="tokens", ge=1024, le=1_000_000
    )
    gpus: int = key(
        1, "GPUs per job (transport offline), which share the model; 0: CPU only.", unit="GPUs", ge=0, le=64
    )
    gpu_memory: Share = key(0.9, "Fraction of each GPU's memory that vLLM uses (transport offline).")
    server: Address = key(
        "http://localhost:8000/v1",
        "Address of the server (transport server). The environment variable OPENAI_API_KEY holds the server's key.",
    )
    servers: dict[str, Address] = key(dict, "{model: address} of models that run on a server other than `server`.")
    requests: int = key(32, "Number of concurrent requests (transport server).", unit="requests", ge=1, le=1024)
    remote_ok: bool = key(
        False, "Whether patients' texts and images may be sent to a server outside the private network."
    )


class LanguageModel(Section):
    """One language model at a fixed revision. The default is the model that structures reports in the paper."""

    model: str = key(
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503", "Hugging Face id or folder.", source=PAPER, min_length=1
    )
    revision: str = key(
        "68faf511d618ef198fef186659617cfd2eb8e33a", "Commit of the model on Hugging Face; empty for a folder."
    )
    max_tokens: int = key(4096, "Maximum length of an answer; longer answers fail.", unit="tokens", ge=16, le=1_000_000)
    temperature: float = key(0.0, "Sampling temperature of first answers; 0: greedy, higher: more varied.", ge=0, le=2)


class ModelOverride(Section):
    """A language model that replaces the model of a section."""

    model: str = key("", "Hugging Face id or folder of another model; empty: that of the section.")
    revision: str = redefine(LanguageModel, "revision", "")
