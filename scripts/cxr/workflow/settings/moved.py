"""Settings that have another name since a version: what a settings file of yesterday is answered with."""

from collections.abc import Iterator

MIMIC_ILS = "mimic_ils"
"""What the runs of the model half call the dataset of ``dataset.mimic_ils``, as they do a threshold set."""
MOVED = {
    "dataset.release": "dataset.mimic_ils",
    "dataset.release_images": "dataset.mimic_ils_images",
    "dataset.released_layout": "dataset.mimic_ils_layout",
}
"""{old key: new key}."""
OLD_SET = "release"
"""What :data:`MIMIC_ILS` was called."""
NAMING = ("training.runs.*.thresholds", "training.runs.*.test", "evaluation.predictions.*.test")
"""Keys that name a threshold set, or that dataset."""


def moved(config: object) -> list[str]:
    """Return one sentence for each setting of ``config`` that has moved, in the order of the tables."""
    keys = [f"{old} is now {new}: rename it." for old, new in MOVED.items() if list(_values(config, old.split(".")))]
    sets = [
        f"{name} is {value!r}, a set that is now called {MIMIC_ILS!r}: rename it."
        for pattern in NAMING
        for name, value in _values(config, pattern.split("."))
        if value == OLD_SET
    ]
    return keys + sets


def _values(config: object, parts: list[str], above: str = "") -> Iterator[tuple[str, object]]:
    """Yield (key, value) of what is at ``parts``, where ``*`` stands for any name; nothing, where it is not there."""
    if not parts:
        yield above, config
    elif isinstance(config, dict):
        for name in config if parts[0] == "*" else {parts[0]} & config.keys():
            yield from _values(config[name], parts[1:], f"{above}.{name}" if above else str(name))
