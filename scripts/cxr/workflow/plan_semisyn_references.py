"""What the rules of SemiSynCXR take from the settings of references: their files, and what jobs are told of them."""

from cxr.annotations.formats import FOLDERS
from cxr.base.errors import existing_file, existing_folder
from cxr.workflow.settings import Settings
from cxr.workflow.settings.semisyn.references import Reference


def reference_file(settings: Settings, name: str) -> str:
    """Return the file of a reference, or its folder where the format is one. Raises UserError if it is missing."""
    reference, key = settings.semisyn.references[name], f"semisyn.references.{name}.path"
    return str((existing_folder if reference.format in FOLDERS else existing_file)(key, reference.path))


def told_of(name: str, reference: Reference) -> dict:
    """Return what the jobs are told of a reference."""
    return {"name": name} | reference.as_dict(without=("patients", "images"))
