"""Renamed settings: an old settings file gets one sentence per renamed key."""

from collections.abc import Iterator

MIMIC_ILS = "mimic_ils"
"""Name of the dataset of ``dataset.mimic_ils`` in settings that name a threshold set."""
MOVED = {
    "dataset.release": "dataset.mimic_ils",
    "dataset.release_images": "dataset.mimic_ils_images",
    "dataset.released_layout": "dataset.mimic_ils_layout",
}
"""{old key: new key}."""
OLD_SET = "release"
"""Old name of :data:`MIMIC_ILS`."""
NAMING = ("training.runs.*.thresholds", "training.runs.*.test", "evaluation.predictions.*.test")
"""Keys that name a threshold set, or that dataset."""


def moved(config: object) -> list[str]:
    """Return one sentence for each renamed setting in ``config``, in the order of the tables."""
    keys = [f"{old} is now {new}: rename it." for old, new in MOVED.items() if list(_values(config, old.split(".")))]
    sets = [
        f"{name} is {value!r}, a set that is now called {MIMIC_ILS!r}: rename it."
        for pattern in NAMING
        for name, value in _values(config, pattern.split("."))
        if value == OLD_SET
    ]
    return keys + sets


def _values(config: object, parts: list[str], above: str = "") -> Iterator[tuple[str, object]]:
    """Yield (key, value) of each setting at the path ``parts``, where ``*`` matches any name."""
    if not parts:
        yield above, config
    elif isinstance(config, dict):
        for name in config if parts[0] == "*" else {parts[0]} & config.keys():
            yield from _values(config[name], parts[1:], f"{above}.{name}" if above else str(name))
