"""Write the datasheet: sources, contents, licences and warnings of the dataset."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from cxr.base.atomic import atomic_file
from cxr.base.paths import RESOURCES
from cxr.base.tables import read_table

RESOURCE_FILES = ("weights.yaml",)
WEIGHTS_BY_ENGINE = {"radedit": ("radedit", "sdxl_vae", "biovil_t")}
"""{engine: entries of resources/weights.yaml that it reads}."""
ENGINE_NOTES = {
    "lite": "`lite` paints and reads no weights.",
    "diffusion": "`diffusion` reads a model of your own: its licence holds for the images too.",
}
FORMAT_NOTES = {
    "yolo": "Give Ultralytics the absolute path of `data.yaml`: some versions look for a relative one elsewhere. If no "
    "image is of a validation patient, `val` names the images of `train`, because Ultralytics does not train without "
    "`val`; scores on them tell nothing.\n\n"
}
"""{format: note for its users}."""
WARNING = """\
**The findings are synthetic.** They are not findings of the patients whose X-rays were used, and no image may be
read as evidence of a patient's disease. Every picture says so in a text chunk, and every row in the column `says`.

**Edited images are derived data.** What a data-use agreement says of the source images (MIMIC-CXR: not to be passed
on without access) holds for them. `semisyn.dataset.withhold` leaves out pixels and ids as `release.withhold` names
them.

**Circularity.** The lite detector, and the net of the anomaly maps, learnt from lesions that the same painter drew.
Their scores on images of the engine `lite` say nothing about realism.
"""


def readme_head(options: Any, num_images: int, per_finding: int) -> str:
    """Return the first section of an export's README.

    ``options``: :class:`cxr.semisyn.dataset.export.ExportOptions`; ``per_finding``: most images of a finding.
    """
    withheld = f" Left out: {', '.join(options.withhold)}." if options.withhold else ""
    return (
        f"# SemiSynCXR, {num_images:,} images\n\nUp to {per_finding:,} images of each finding. Boxes: {options.kind}, "
        f"convention {options.target}. Pixels: {options.pixels}.{withheld}\n\n" + FORMAT_NOTES.get(options.format, "")
    )


def run(
    *, images: str, funnel: str, conservation: str, counts: str, priors: str, sheet: str | Path, source: str,
    labels: dict[str, str],
) -> None:  # fmt: skip
    """Write the datasheet from the dataset's tables, the pool's funnel and the priors.

    ``source``: of the cohort; ``labels``: {finding: display name}.
    """
    image_table = read_table(images)
    healthy_funnel = markdown_table(read_table(funnel))
    origins = yaml.safe_load(Path(priors).read_text(encoding="utf-8"))["findings"]
    parts = [
        "# Datasheet: semi-synthetic X-rays with boxes\n",
        WARNING,
        f"## Sources\n\nCohort: `{source}`. {describe_sources(image_table)}\n\n{healthy_funnel}",
        f"## Jobs\n\n{markdown_table(read_table(conservation))}",
        f"## Images by finding, side and zone\n\n{markdown_table(read_table(counts))}",
        "## Priors\n\n" + "\n".join(f"* {label}: {origins[name]['origin']}" for name, label in labels.items()) + "\n",
        f"## Engines and licences\n\n{list_licences(sorted(set(image_table['engine'])))}",
    ]
    with atomic_file(sheet) as temporary:
        temporary.write_text("\n".join(parts), encoding="utf-8", newline="\n")


def describe_sources(images: pl.DataFrame) -> str:
    """Return a sentence with the number of source images and patients, and how often one image was used at most."""
    if images.is_empty():
        return "No image was made."
    films, patients = images["image_id"].n_unique(), images["subject_id"].n_unique()
    most = images.group_by("image_id").len()["len"].max()
    return (
        f"{len(images)} edited images of {films} healthy ones of {patients} patients; one image was used up to {most} "
        "times."
    )


def markdown_table(table: pl.DataFrame) -> str:
    """Return a table as Markdown; null cells are empty."""
    rows = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * table.width]
    rows += ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in table.iter_rows()]
    return "\n".join(rows) + "\n"


def list_licences(engines: Sequence[str]) -> str:
    """Return a line for each set of weights that the engines read, with its licence."""
    entries = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    lines = []
    for engine in engines:
        lines += [f"* {ENGINE_NOTES[engine]}"] if engine in ENGINE_NOTES else []
        lines += [
            f"* `{engine}` reads {entries[name]['source']}: {entries[name]['licence']}."
            for name in WEIGHTS_BY_ENGINE.get(engine, ())
        ]
    return "\n".join(lines) + "\n"
