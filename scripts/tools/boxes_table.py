"""Convert annotated boxes to a table for `boxes: {engine: table, table: FILE, table_pixels: original}`.

python scripts/tools/boxes_table.py vindr train.csv boxes.csv
python scripts/tools/boxes_table.py nih BBox_List_2017.csv boxes.csv --image-id "nih-{stem}" --class "Mass=Nodule/Mass"
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cxr.annotations.box_table import read_box_table
from cxr.annotations.formats import FORMATS
from cxr.base.errors import UserError
from cxr.base.tables import write_table
from cxr.base.vocabulary import BOX_CLASSES


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("file", help="the published file (docs/how-to/agreement.md)")
    parser.add_argument("table", help="CSV or Parquet file to write")
    parser.add_argument(
        "--image-id", default="{stem}", help="template of image_id; {name}: name in the file; {stem}: without ending"
    )
    parser.add_argument("--class", dest="classes", action="append", default=[], metavar="LABEL=CLASS")
    given = parser.parse_args(arguments)
    try:
        classes = dict(pair.rpartition("=")[::2] for pair in given.classes)
        for label, name in classes.items():
            if name not in BOX_CLASSES:
                raise UserError(
                    f"--class {label}={name}: {name!r} is not a class: choose one of {', '.join(BOX_CLASSES)}"
                )
        found, gone = read_box_table(given.file, given.format, given.image_id, classes)
    except UserError as error:
        print(f"cxr-ils: {error}", file=sys.stderr)
        return 1
    write_table(given.table, found)
    print(f"{len(found)} boxes of {found['image_id'].n_unique()} images in {given.table}")
    for reason, number in sorted(gone.items()):
        print(f"left out: {number}, {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
