"""Settings of the editing: configurations, which of them edits which finding, and limits."""

from typing import Literal

from cxr.base.settings import AUTHORS, OURS, PAPER, Section, Share, constraint, key, refuse_equal_names
from cxr.semisyn.shared import CHOSEN_CONFIG, SELECTION
from cxr.workflow.settings.diffusion import Autoencoder, autoencoder
from cxr.workflow.settings.semisyn.configs import (
    OWN_STRENGTH,
    PIPELINES,
    ConfigName,
    EditingConfig,
    EditingGrid,
)
from cxr.workflow.settings.semisyn.editing_lite import Lite


def _named() -> dict[str, EditingConfig]:
    return {"lite": EditingConfig()} | {
        name: EditingConfig(**config_fields) for name, config_fields in PIPELINES.items()
    }


class RadEdit(Section):
    """The engine radedit: RadEdit, from the weights of the stage anomaly's engine of that name."""

    steps: int = key(200, "Steps of the model.", source=AUTHORS, ge=1, le=1000)
    guidance: float = key(7.5, "Weight of the prompt.", source=AUTHORS, ge=0, le=100)
    invert_guidance: float = key(3.5, "Weight of a negative prompt in the inversion.", source=AUTHORS, ge=0, le=100)
    strength: Share = key(OWN_STRENGTH["radedit"], "Fraction of the noise levels that is run through.", source=AUTHORS)
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Number type of the U-Net.", source=AUTHORS)
    autoencoder: Autoencoder = autoencoder()


class Diffusion(Section):
    """The engine diffusion: RoentGen, or any other model in Stable Diffusion's layout."""

    model: str = key("", "Folder of the model, with model_index.json.")
    steps: int = key(75, "Steps of the model.", ge=1, le=1000)
    guidance: float = key(4.0, "Weight of the prompt.", ge=0, le=100)
    strength: Share = key(
        OWN_STRENGTH["diffusion"], "Fraction of the noise levels that is run through.", source=AUTHORS
    )
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Number type of the U-Net.", source=AUTHORS)
    autoencoder: Autoencoder = autoencoder()


class Editing(Section):
    """Findings put into healthy images."""

    configs: dict[ConfigName, EditingConfig] = key(_named, "Configurations by name.", source=OURS)
    grid: EditingGrid = key(EditingGrid, "More configurations: the points of a search.", source=PAPER)
    choice: dict[str, str] | Literal["selection"] = key(
        dict,
        "Configuration of each finding, {finding: name}; findings that it lacks have lite. selection: that of the "
        "stage semisyn_selection.",
    )
    max_leak: Share = key(0.5, "Largest share of the squared change outside of the boxes; a job with more is excluded.")
    visible: float = key(4.0, "Change from which a pixel counts as changed.", unit="grey levels", gt=0, le=255)
    lite: Lite = key(Lite, "Settings of the engine lite.")
    radedit: RadEdit = key(RadEdit, "Settings of the engine radedit.", source=AUTHORS)
    diffusion: Diffusion = key(Diffusion, "Settings of the engine diffusion.", source=AUTHORS)

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
