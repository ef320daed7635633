"""Names that the settings and several stages of SemiSynCXR share."""

CHOSEN_CONFIG = "chosen"
"""The configuration that stands for each finding's own; the dataset is taken from what it made."""
SELECTION = "selection"
"""The choice of configurations that the stage semisyn_selection makes."""
DEFAULT_CONFIG = "lite"
"""Configuration of a finding for which none is chosen."""
WARPED_FINDING = "cardiomegaly"
"""The finding that moves organs: its change lies beside the box too, so that leak, edges and a visible box say nothing
of it."""
