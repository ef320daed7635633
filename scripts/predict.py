"""One chest X-ray and instructions: masks, answers, overlays, and for DICOM a segmentation object.

python scripts/predict.py --model results/training/default/model --image chest.dcm --instruction "Segment the effusion."
"""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import yaml

from ils.cohort.header import check_kind, check_view, read_header
from ils.core import run
from ils.core.geometry import fit_affine, to_frame
from ils.core.labels import REASONS
from ils.core.media import HEAD_BYTES, HeaderError, Rejected, file_kind, read_dicom
from ils.core.options import stage_options
from ils.core.provenance import code_digest
from ils.core.run import UserError
from ils.core.settings import SettingsError, read
from ils.core.store import StoreError
from ils.frames.decode import decode
from ils.frames.window import to_grey
from ils.inference.asking import Asker, Options
from ils.inference.predict import Picture, predict, sides_of, write
from ils.inference.stage import check


def picture_of(path: str, cohort: dict, frames: dict) -> tuple[Picture, object]:
    """Decode a DICOM, PNG or JPEG file as the workflow does: (picture, DICOM header or None).

    ``cohort``, ``frames``: options of those stages. Raises UserError for a file that is no frontal chest X-ray or
    cannot be decoded; a view or body part that the file does not tell is accepted.
    """
    try:
        header = read_header(path)
        check_kind(header, cohort["modalities"], cohort["body_parts"])
        check_view(header.view, header.view_field, cohort["views"], accept_unknown=True)
        grey = to_grey(decode(path, frames["max_pixels"]), frames["window"], frames["percentiles"])
        with open(path, "rb") as file:
            dicom = file_kind(file.read(HEAD_BYTES)) == "dicom"
        dataset = read_dicom(Path(path).read_bytes()) if dicom else None
    except Rejected as rejected:
        detail = f" ({rejected.detail})" if rejected.detail else ""
        raise UserError(f"{path}: {REASONS[rejected.reason]}{detail}: give a frontal chest X-ray") from None
    except (HeaderError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}): give a frontal chest X-ray") from None
    affine = fit_affine(grey.shape, frames["size"], frames["fit"])
    return Picture(grey, to_frame(grey, affine, frames["size"]), affine, sides_of(dataset)), dataset


def made_at() -> datetime:
    """Return the time that the segmentation bears: now, or what SOURCE_DATE_EPOCH says (reproducible-builds.org)."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(fixed), UTC) if fixed else datetime.now(UTC)


def predict_file(
    *,
    model: str,
    image: str,
    instructions: Sequence[str],
    output: str,
    asking: dict,
    cohort: dict,
    frames: dict,
    compute: dict,
) -> dict:
    """Ask a model about the picture in a file; write all into the folder ``output``, return its answers.json.

    ``asking``, ``cohort``, ``frames``: options of the stages inference, cohort and frames. Raises UserError for a
    user's mistake.
    """
    if not image or not instructions:
        raise UserError("predict wants --config image=chest.dcm instruction='Segment the edema.'")
    options = Options(**asking)
    check(options)
    picture, header = picture_of(image, cohort, frames)
    findings = predict(Asker.load(model, options, compute), picture, instructions)
    name = "/".join(Path(model).resolve().parts[-2:])
    return write(
        output, picture, findings, header=header, version=code_digest("predict.py"), model=name, made=made_at()
    )


def main(arguments: list[str] | None = None) -> int:
    """Run as a program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a trained model")
    parser.add_argument("--image", required=True, help="frontal chest X-ray: DICOM, PNG or JPEG")
    parser.add_argument("--instruction", required=True, action="append", help="may be given several times")
    parser.add_argument("--output", required=True, help="folder for what is made")
    parser.add_argument("--configfile", help="settings, as for snakemake")
    parser.add_argument("--no-text", action="store_true", help="masks alone, which is faster")
    given = parser.parse_args(arguments)
    try:
        settings = read(_configuration(given.configfile), filter(None, [given.configfile]))
        options = stage_options(settings)
        asking = options["inference"]
        asking["text"] &= not given.no_text
        about = predict_file(
            model=given.model, image=given.image, instructions=given.instruction, output=given.output, asking=asking,
            cohort=options["cohort"], frames=options["frames"], compute=settings.compute.model_dump(),
        )  # fmt: skip
    except (UserError, SettingsError, StoreError) as error:
        print(f"cxr-ils: {error}", file=sys.stderr)
        return 1
    for finding in about["findings"]:
        where = f"{finding['mask']}, {finding['pixels']} pixels" if finding["pixels"] else "empty mask"
        print(f"{finding['instruction']}\n  {finding['answer'] or '-'}\n  {where}")
    for note in about["notes"]:
        print(note)
    return 0


def _configuration(path: str | None) -> dict:
    if path is None:
        return {}
    try:
        held = yaml.safe_load(run.existing_file("--configfile", path).read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError):
        held = None
    if not isinstance(held, dict):
        raise UserError(f"--configfile {path} is no YAML of settings: see config.yaml")
    return held


if "snakemake" in globals():
    run.start(snakemake.log[0])
    given = {name: value for name, value in snakemake.params.items() if name != "code"}
    predict_file(**snakemake.input, **snakemake.output, **given, compute=run.compute_of(snakemake))
elif __name__ == "__main__":
    sys.exit(main())
