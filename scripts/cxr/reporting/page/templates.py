"""Load the pages' templates from ``resources/page``. Every inserted value is escaped; a missing name is an error."""

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from cxr.base.paths import RESOURCES
from cxr.reporting.page.sections import number

RESOURCE_FILES = ("page",)


def template(name: str) -> Template:
    """Return a template by its file name."""
    loader = FileSystemLoader(RESOURCES / "page")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = number
    return environment.get_template(name)
