"""A user's file of findings: nodules."""

from pathlib import Path

import yaml

NODULE = {
    "findings": {
        "nodule": {
            "label": "Nodule",
            "painter": "opacity",
            "prior": {
                "center_x": {"family": "uniform", "loc": 10, "scale": 80},
                "center_y": {"family": "norm", "loc": 50, "scale": 20},
                "size": {"family": "mvlognormal", "mu": [2.2, 2.1], "sigma": [[0.05, 0.02], [0.02, 0.05]]},
            },
            "minimum": [2, 2],
            "prompts": {"Solitary nodule.": 3, "Nodule in the left perihilar region.": 1},
        }
    },
    "zones": {"left": {"perihilar": [0, 20, 50, 70]}, "right": {"perihilar": [50, 20, 100, 70]}},
    "parser": {"zones": [["perihilar", "perihilar"]]},
}


def written(folder: Path, changes: dict | None = None) -> Path:
    """Write the file, or one with other contents, and return its path."""
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(changes or NODULE), encoding="utf-8")
    return path
