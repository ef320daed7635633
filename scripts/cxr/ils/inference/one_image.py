"""Ask a model about one chest X-ray file: decode it as the workflow does, ask, and write the masks and overlays."""

from collections.abc import Sequence
from pathlib import Path

from cxr.base.errors import UserError
from cxr.base.tables import read_lines
from cxr.ils.inference.asker import Asker, InferenceOptions
from cxr.ils.inference.infer import check_options
from cxr.ils.inference.predict import ask_about_image, write_findings
from cxr.imaging.one_image import made_at, picture_of


def run(
    *,
    model: str,
    image: str,
    instructions: Sequence[str],
    output: str,
    asking: dict,
    cohort: dict,
    frames: dict,
    compute: dict,
    code: str,
    told: str | None = None,
) -> dict:
    """Ask a model about the image in a file. Write the results into the folder ``output`` and return its answers.json.

    ``asking``, ``cohort``, ``frames``: options of the stages inference, cohort and frames; ``code``: the digest of the
    code, which a segmentation object states as its version; ``told``: a file with the instructions, a JSON line each,
    which may be empty. Raises UserError for a user's mistake.
    """
    if told:
        instructions = [line["instruction"] for line in read_lines(told)]
    elif not image or not instructions:
        raise UserError("predict needs --config image=chest.dcm instruction='Segment the edema.'")
    options = InferenceOptions(**asking)
    check_options(options)
    picture, header = picture_of(image, cohort, frames)
    findings = ask_about_image(Asker.load(model, options, compute), picture, instructions) if instructions else []
    name = "/".join(Path(model).resolve().parts[-2:])
    return write_findings(output, picture, findings, header=header, version=code, model=name, created_at=made_at())
