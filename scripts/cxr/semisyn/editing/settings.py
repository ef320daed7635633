"""Settings of the stage semisyn_editing: configurations, their search (Appendix E) and choice, and limits."""

from decimal import Decimal
from itertools import product
from typing import Annotated, Literal

from cxr.base.settings import AUTHORS, OURS, PAPER, Limits, Section, Share, constraint, key, refuse_equal_names
from cxr.nets.settings import Autoencoder, autoencoder
from cxr.semisyn.shared import BLURS, CHOSEN_CONFIG, SELECTION

ConfigName = Annotated[str, Limits(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
PIPELINES = {
    "roentgen_before": {"engine": "diffusion", "blending": "before"},
    "roentgen_after": {"engine": "diffusion", "blending": "after"},
    "roentgen_cfg": {"engine": "diffusion", "blending": "guidance"},
    "radedit": {"engine": "radedit", "blending": "guidance"},
}
"""The paper's four pairs of a model and a way to keep the source image outside the mask (section 3.5)."""
BASE = "roentgen_after"
"""Pipeline whose settings a sequential search varies one by one. If the grid lacks it, its first pipeline is used."""
OWN_STRENGTH = {"diffusion": 1.0, "radedit": 0.7, "lite": 1.0}
"""{engine: strength (fraction of the noise levels in use) of a configuration whose setting ``strength`` is 0}."""
AXES: dict[str, list] = {
    "prompt": ["phrase", "label"],
    "blur": list(BLURS),
    "extent": [1.0, 0.95, 0.9, 0.85],
    "steps": [1.0, 1.33, 2.0],
    "guidance": [],
    "strength": [0.0, 0.9, 1.0],
    "negative": ["", "No acute cardiopulmonary process."],
}
"""Axes of the grid in Appendix E: {field of :class:`EditingConfig`: its values, the default first}. The values of
guidance depend on the engine (:data:`GUIDANCE`)."""
GUIDANCE = {"radedit": [0.0, 12.0, 15.0, 19.0], "diffusion": [0.0, 6.0, 7.5, 10.0]}
"""{engine: guidance weights to try}. The value 0 stands for the engine's default."""


class EditingConfig(Section):
    """An editing configuration: an engine and its options. The engine lite uses only ``engine`` and ``prompt``."""

    engine: Literal["lite", "radedit", "diffusion"] = key("lite", "Engine that edits the images.")
    blending: Literal["before", "after", "guidance"] = key(
        "after",
        "How the engine `diffusion` keeps the source outside the mask. before, after: blend it in before or after each "
        "step; guidance: guide by the prompt only inside the mask.",
        source=PAPER,
    )
    prompt: Literal["phrase", "label"] = key(
        "phrase", "Prompt. phrase: a phrase such as 'Left effusion.'; label: only the finding's name.", source=PAPER
    )
    negative: str = key("", "Negative prompt: what the model must not draw; empty: nothing.", source=PAPER)
    blur: Literal[tuple(BLURS)] = key(
        "none",
        "Softening of the mask's edges. gauss_rX: Gaussian blur whose SD is half the box's side / X; "
        "ggauss_bN: a generalised Gaussian with the exponent N; none: a sharp box.",
        source=PAPER,
    )
    extent: Share = key(1.0, "Fraction of the steps, from the noisiest on, in which the mask applies.", source=PAPER)
    steps: float = key(1.0, "Number of steps, as a multiple of the engine's default.", source=PAPER, gt=0, le=20)
    guidance: float = key(0.0, "Guidance weight of the prompt; 0: the engine's default.", source=PAPER, ge=0, le=100)
    strength: float = key(
        0.0, "Fraction of noise levels to use. Higher: more change; 0: engine's default.", source=AUTHORS, ge=0, le=1
    )
    composite: Literal["support", "none"] = key(
        "support", "Pixels outside the mask. support: as in the source image; none: as the model returns them."
    )

    def effective(self) -> tuple:
        """Return the settings that affect the images. Configurations with equal settings make the same images."""
        config_fields = self.as_dict() | {"strength": self.strength or OWN_STRENGTH[self.engine]}
        if self.engine == "lite":
            config_fields = {name: config_fields[name] for name in ("engine", "prompt")}
        elif self.engine == "radedit":
            config_fields.pop("blending")
        return tuple(sorted(config_fields.items()))


class EditingGrid(Section):
    """A search over configurations. Without pipelines the grid is empty."""

    pipelines: list[Literal[tuple(PIPELINES)]] = key(list, "Pipelines to search over; empty: no search.", source=OURS)

    def points(self, search: str) -> dict[str, EditingConfig]:
        """Return {name: configuration} of a ``search``, "sequential", "figures" or "product". A name consists of
        the pipeline and each value that differs from the default, such as ``roentgen_after_extent0.9``."""
        if not self.pipelines:
            return {}
        axes = {name: AXES | {"guidance": GUIDANCE[PIPELINES[name]["engine"]]} for name in self.pipelines}
        if search == "sequential":
            base = BASE if BASE in self.pipelines else self.pipelines[0]
            combinations = [(pipeline, {}) for pipeline in self.pipelines]
            combinations += [(base, {axis: value}) for axis, values in axes[base].items() for value in values[1:]]
        else:
            combinations = []
            for pipeline in self.pipelines:
                names = ("blur", "extent") if search == "figures" else tuple(axes[pipeline])
                grid = product(*(axes[pipeline][name] for name in names))
                combinations += [(pipeline, dict(zip(names, values, strict=True))) for values in grid]
        points = {}
        for pipeline, values in combinations:
            words, config = [pipeline], {axis: choices[0] for axis, choices in axes[pipeline].items()} | values
            for axis, choices in axes[pipeline].items():
                value, number = config[axis], choices.index(config[axis])
                if number and axis == "negative":  # its value is a sentence
                    words.append(axis if number == 1 else f"{axis}{number}")
                elif number:
                    words.append(f"{axis}{Decimal(repr(value)):f}" if isinstance(value, float) else f"{axis}-{value}")
            points["_".join(words)] = EditingConfig(**PIPELINES[pipeline], **config)
        return points


class DiffusionSettings(Section):
    """The engine ``diffusion``: RoentGen, or any other model in Stable Diffusion's layout."""

    model: str = key("", "Folder of the model, with model_index.json.")
    steps: int = key(75, "Number of diffusion steps.", ge=1, le=1000)
    guidance: float = key(4.0, "Guidance weight. Higher values follow the prompt more closely.", ge=0, le=100)


class EditingSettings(Section):
    """Settings for editing findings into healthy images."""

    configs: dict[ConfigName, EditingConfig] = key(
        lambda: {"lite": EditingConfig()} | {name: EditingConfig(**fields) for name, fields in PIPELINES.items()},
        "Editing configurations by name.",
        source=OURS,
    )
    grid: EditingGrid = key(EditingGrid, "Further configurations: the points of a grid search.", source=PAPER)
    choice: dict[str, str] | Literal["selection"] = key(
        dict, "{finding: configuration}, lite for unlisted ones; or selection: the stage semisyn_selection chooses."
    )
    max_leak: Share = key(0.5, "Fraction of the squared change outside the boxes above which an edit is excluded.")
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Floating-point type of the U-Nets.", source=AUTHORS)
    autoencoder: Autoencoder = autoencoder()
    diffusion: DiffusionSettings = key(DiffusionSettings, "Settings of the engine `diffusion`.", source=AUTHORS)

    @constraint
    def _names_exist(self) -> None:
        if CHOSEN_CONFIG in self.configs:
            raise ValueError(f"configs names {CHOSEN_CONFIG!r}, which is reserved: rename this configuration")
        refuse_equal_names("the configurations", self.configs)
        if self.choice != SELECTION:
            for finding, name in self.choice.items():
                if name not in self.configs:
                    raise ValueError(
                        f"choice.{finding} is {name!r}, but configs has {', '.join(self.configs)}: name one of them"
                    )
