"""Settings of the editing: configurations, which of them edits which finding, and limits."""

from typing import Literal

from cxr.base.settings import AUTHORS, OURS, PAPER, Section, Share, constraint, key, refuse_equal_names
from cxr.nets.settings import Autoencoder, autoencoder
from cxr.semisyn.editing.configs import PIPELINES, ConfigName, EditingConfig, EditingGrid
from cxr.semisyn.shared import CHOSEN_CONFIG, SELECTION


class DiffusionSettings(Section):
    """The engine diffusion: RoentGen, or any other model in Stable Diffusion's layout."""

    model: str = key("", "Folder of the model, with model_index.json.")
    steps: int = key(75, "Steps of the model.", ge=1, le=1000)
    guidance: float = key(4.0, "Weight of the prompt.", ge=0, le=100)


class EditingSettings(Section):
    """Editing findings into healthy images."""

    configs: dict[ConfigName, EditingConfig] = key(
        lambda: {"lite": EditingConfig()} | {name: EditingConfig(**fields) for name, fields in PIPELINES.items()},
        "Configurations by name.",
        source=OURS,
    )
    grid: EditingGrid = key(EditingGrid, "More configurations: the points of a search.", source=PAPER)
    choice: dict[str, str] | Literal["selection"] = key(
        dict,
        "Configuration of each finding, {finding: name}, else lite; selection: the choice of the stage "
        "semisyn_selection.",
    )
    max_leak: Share = key(0.5, "Fraction of the squared change outside the boxes above which a job is excluded.")
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Number type of the U-Nets.", source=AUTHORS)
    autoencoder: Autoencoder = autoencoder()
    diffusion: DiffusionSettings = key(DiffusionSettings, "Settings of the engine diffusion.", source=AUTHORS)

    @constraint
    def _names_exist(self) -> None:
        if CHOSEN_CONFIG in self.configs:
            raise ValueError(f"configs names {CHOSEN_CONFIG!r}, which is reserved: rename it")
        refuse_equal_names("the configurations", self.configs)
        if self.choice != SELECTION:
            for finding, name in self.choice.items():
                if name not in self.configs:
                    raise ValueError(
                        f"choice.{finding} is {name!r}, but the configurations are {', '.join(self.configs)}"
                    )
