"""Reading settings files a second time, to report repeated keys and to keep the exact text of each value.

YAML readers silently keep the last of two equal keys, and turn ``version: 1.10`` into a number and
``date: 2026-01-01`` into a date. Snakemake passes on only the result, so the files are read again here.
"""

from collections.abc import Iterable
from pathlib import Path

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEMPLATE = "__use_yte__"
"""Key of a file that Snakemake fills in as a template: its text differs from its values."""


class Twice(ValueError):
    """A file gives a key twice; the message is one sentence."""


def written(paths: Iterable[str | Path]) -> dict:
    """Return the settings of YAML or JSON files, later ones over earlier ones, each scalar as the text in the file.

    A file that is not YAML is skipped: the reader of its values reports it. Raises Twice for a repeated key.
    """
    settings: dict = {}
    for path in paths:
        try:
            node = yaml.compose(Path(path).read_text(encoding="utf-8-sig"), Loader=LOADER)
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            continue
        if isinstance(node, yaml.MappingNode) and TEMPLATE not in {name.value for name, _ in node.value}:
            settings = over(settings, _plain(node, str(path), ()))
    return settings


def over(below: dict, above: dict) -> dict:
    """Return ``above`` laid over ``below``, section by section, as Snakemake lays settings files over each other."""
    merged = below | above
    sections = [name for name in above if isinstance(below.get(name), dict) and isinstance(above[name], dict)]
    return merged | {name: over(below[name], above[name]) for name in sections}


def _plain(node: yaml.Node, path: str, where: tuple[str, ...]) -> object:
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, path, where) for item in node.value]
    if not isinstance(node, yaml.MappingNode):
        return node.value
    lines: dict[str, int] = {}
    mapping = {}
    for name, value in node.value:
        key, line = str(name.value), name.start_mark.line + 1
        if key in lines and key != "<<":
            full = ".".join((*where, key))
            raise Twice(
                f"{full} stands twice in {path}, on lines {lines[key]} and {line}, and only the last would count: "
                "join the two"
            )
        lines[key] = line
        mapping[key] = _plain(value, path, (*where, key))
    return mapping


def at(node: object, where: Iterable[object]) -> str | None:
    """Return the text at a place of :func:`written`'s settings, None where there is none."""
    for part in where:
        if isinstance(node, dict):
            node = node.get(str(part))
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            return None
    return node if isinstance(node, str) else None
