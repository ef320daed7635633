"""Refuse renamed and removed settings (``resources/changed_keys.yaml``), with one sentence for each."""

from collections.abc import Iterator

from cxr.base.resources import load_resource

RESOURCE_FILES = ("changed_keys.yaml",)
"""File with one line for each setting that was renamed or became a constant."""
MIMIC_ILS = "mimic_ils"
"""Name of the dataset in the folder ``dataset.mimic_ils``. A setting can give it in place of a threshold set."""
OLD = "release"
"""Old name of the dataset ``mimic_ils`` and of its format."""

SENTENCES = {
    "moved": "{name} is now {text}: rename it.",
    "removed": "{name} is no longer a setting, its value is always {text}: remove it.",
    "replaced": "{name} is no longer a setting: {text}.",
}


def read_changed_keys() -> dict[str, dict[str, str]]:
    """Return the tables ``moved``, ``replaced``, ``removed`` and ``naming``, each as {old key: text}."""
    return load_resource(RESOURCE_FILES[0])


def describe_changed_keys(config: object) -> list[str]:
    """Return one sentence for each renamed or removed setting in ``config``, in the order of the tables."""
    changed = read_changed_keys()
    keys = [
        sentence.format(name=name, text=text)
        for table, sentence in SENTENCES.items()
        for old, text in changed[table].items()
        for name, _ in values_at(config, old)
    ]
    return keys + [
        f"{name} is {value!r}, a {kind} that is now called {MIMIC_ILS!r}: rename it."
        for pattern, kind in changed["naming"].items()
        for name, value in values_at(config, pattern)
        if value == OLD or (kind == "format" and str(value).lower() == OLD)  # a set may be called Release
    ]


def values_at(config: object, path: str, above: str = "") -> Iterator[tuple[str, object]]:
    """Yield (key, value) of each setting at a path such as "training.runs.*.test", in which ``*`` matches any name.
    ``above``: prefix of the keys that are returned."""
    first, _, remainder = path.partition(".")
    if isinstance(config, dict):
        for name in config if first == "*" else {first} & config.keys():
            if remainder:
                yield from values_at(config[name], remainder, f"{above}{name}.")
            else:
                yield f"{above}{name}", config[name]
