"""Ask a model about one chest X-ray: write masks, answers, overlays, and for DICOM a segmentation object.

python scripts/tools/predict.py --model results/training/default/model --image chest.dcm \\
    --instruction "Segment the effusion." --output answers
"""

import argparse
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cxr.base.errors import StoreError, UserError, existing_file
from cxr.ils.inference.predict import run
from cxr.workflow.code_digest import code_digest
from cxr.workflow.params import stage_options
from cxr.workflow.settings import SettingsError, read

SCRIPT = "tools/predict.py"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a trained model")
    parser.add_argument("--image", required=True, help="frontal chest X-ray: DICOM, PNG or JPEG")
    parser.add_argument("--instruction", required=True, action="append", help="may be given several times")
    parser.add_argument("--output", required=True, help="folder for the results")
    parser.add_argument("--configfile", help="settings, as for snakemake")
    parser.add_argument("--no-text", action="store_true", help="only masks, which is faster")
    args = parser.parse_args(arguments)
    try:
        settings = read(_configuration(args.configfile), filter(None, [args.configfile]))
        options = stage_options(settings)
        asking = options["inference"]
        asking["text"] &= not args.no_text
        about = run(
            model=args.model, image=args.image, instructions=args.instruction, output=args.output, asking=asking,
            cohort=options["cohort"], frames=options["frames"], compute=settings.compute.as_dict(),
            code=code_digest(SCRIPT),
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
        values = yaml.safe_load(existing_file("--configfile", path).read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError):
        values = None
    if not isinstance(values, dict):
        raise UserError(f"--configfile {path} is not a YAML file of settings: write it like config.yaml")
    return values


if __name__ == "__main__":
    sys.exit(main())
