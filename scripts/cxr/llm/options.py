"""Options of a language model: the options that change its answers, and the options of how the model runs."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

RETRIES = 2  # number of retries after an answer that violates the schema or the logic
RETRY_TEMPERATURE = 0.5  # minimum temperature of a retry, because greedy decoding would repeat the answer
TIMEOUT_S = 600  # time limit of one request to a server, seconds


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Settings of a model that change its answers. ``key`` is the settings section of the model, for messages.
    ``pictures`` is the maximum number of images per question. ``picture_tokens`` is the maximum number of tokens that
    the model uses for an image."""

    key: str
    transport: str
    model: str
    revision: str
    context: int
    max_tokens: int
    temperature: float
    seed: int
    dtype: str = "auto"
    retries: int = RETRIES
    retry_temperature: float = RETRY_TEMPERATURE
    pictures: int = 0
    picture_tokens: int = 0

    @property
    def name(self) -> str:
        """Name of the model with its revision, as results store it."""
        pinned = self.revision and not Path(self.model).is_dir()
        return f"{self.model}@{self.revision}" if pinned else self.model

    def sampling(self, attempt: int, seed: int | None = None) -> tuple[float, int]:
        """Return (temperature, seed) for an attempt, counted from 0. ``seed`` replaces the seed in the options."""
        temperature = max(self.temperature, self.retry_temperature) if attempt else self.temperature
        return temperature, (self.seed if seed is None else seed) + attempt


@dataclass(frozen=True)
class Execution:
    """Settings of the section ``llm`` for how a model runs. They do not change its answers. ``server_key`` is the
    settings key of the server's address, for messages. ``remote_ok`` says whether patients' texts and images may be
    sent to a server outside this machine and its private network."""

    gpus: int
    gpu_memory: float
    server: str
    requests: int
    server_key: str = "llm.server"
    timeout_s: int = TIMEOUT_S
    remote_ok: bool = False

    @property
    def remote_key(self) -> str:
        """Key of the setting that allows servers outside the private network, for messages."""
        return f"{self.server_key.rpartition('.')[0]}.remote_ok"

    @classmethod
    def from_settings(cls, settings: Mapping, model: str) -> "Execution":
        """Return the options for running ``model``. An address in ``settings["servers"]`` replaces ``server``."""
        address = settings.get("servers", {}).get(model)
        server = {"server": address, "server_key": "llm.servers"} if address else {}
        names = [field.name for field in fields(cls) if field.name in settings]
        return cls(**{name: settings[name] for name in names} | server)
