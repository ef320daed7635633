"""Unpack the reports and view tables of Open-i from the package torchxrayvision: ``openi.py WHEEL_FOLDER OUT``.

The package contains NLMCXR_reports.tgz as the NLM publishes it, and two tables that say which images are frontal. The
images have to be downloaded from the NLM (docs/getting-started/openi.md).
"""

import io
import sys
import tarfile
import zipfile
from pathlib import Path

DATA = "torchxrayvision/data/"
REPORTS = "NLMCXR_reports.tgz"
TABLES = ("nlmcxr_dicom_metadata.csv.gz", "nlmcxr_tsne_pa.csv.gz")
LEFT = """\
{out}: {reports} reports and the tables that say which image is frontal.
The reports are of Indiana University (licence CC BY-NC-ND 4.0). Do not use them commercially or share changed texts.
Now get the images (1.3 GB) from https://openi.nlm.nih.gov/faq:
    curl -LO https://openi.nlm.nih.gov/imgs/collections/NLMCXR_png.tgz
    mkdir -p {out}/NLMCXR_png && tar -xzf NLMCXR_png.tgz -C {out}/NLMCXR_png
Then run the whole workflow:
    snakemake --cores 4 --directory {out} --configfile examples/openi.yaml"""


def unpack(wheel: Path, out: Path) -> int:
    """Write ``ecgen-radiology/*.xml`` and the tables of a wheel into ``out``, and return the number of reports."""
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as package:
        for name in TABLES:
            (out / name).write_bytes(package.read(DATA + name))
        with tarfile.open(fileobj=io.BytesIO(package.read(DATA + REPORTS))) as archive:
            archive.extractall(out, filter="data")
    return len(list((out / "ecgen-radiology").glob("*.xml")))


def main(folder: Path, out: Path) -> None:
    """Unpack the wheel in ``folder`` into ``out``, and print the commands that come next."""
    wheel = next(folder.glob("torchxrayvision-*.whl"), None)
    if wheel is None:
        sys.exit(f"{folder} has no wheel of torchxrayvision: run `make openi`, which downloads one")
    print(LEFT.format(out=out, reports=unpack(wheel, out)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
