"""A small collection in the layout of Open-i: XML as the NLM writes it, images by the names of its archives, tables."""

import csv
from pathlib import Path

import cv2
import numpy as np

from dicom_files import picture

XML = """<?xml version="1.0" encoding="utf-8"?>
<eCitation>
   <meta type="rr"/>
   <uId id="{uid}"/>
   <ccLicense>byncnd</ccLicense>
   <MedlineCitation><Article><Abstract>
      <AbstractText Label="COMPARISON">None.</AbstractText>
      <AbstractText Label="INDICATION">XXXX-year-old with cough, pneumonia</AbstractText>
      <AbstractText Label="FINDINGS">{findings}</AbstractText>
      <AbstractText Label="IMPRESSION">{impression}</AbstractText>
   </Abstract></Article></MedlineCitation>
   {images}
</eCitation>
"""
IMAGE = """<parentImage id="{id}">
      <figureId>F{number}</figureId>
      <caption>{caption}</caption>
      <panel type="single"><url>/hadoop/storage/radiology/extract/{id}.jpg</url></panel>
   </parentImage>"""
CAPTION = "PA and lateral chest x-XXXX XXXX."


def write_report(root: Path, number: int, images: list[str], *, caption: str = CAPTION, **texts: str) -> Path:
    """Write one XML; ``texts``: findings and impression."""
    shown = [IMAGE.format(id=name, number=place, caption=caption) for place, name in enumerate(images, 1)]
    texts = {"findings": "The lungs are clear.", "impression": "No acute disease."} | texts
    path = root / "ecgen-radiology" / f"{number}.xml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(XML.format(uid=f"CXR{number}", images="\n".join(shown), **texts), encoding="utf-8")
    return path


def write_image(root: Path, name: str, grey: np.ndarray | None = None, folder: str = "NLMCXR_png") -> Path:
    """Write an image file of that name, a smooth picture if none is given."""
    path = root / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), picture(200, 180) if grey is None else grey)
    return path


def write_table(root: Path, name: str, header: tuple[str, ...], rows: list[tuple]) -> Path:
    """Write one of the tables that tell the views."""
    with open(root / name, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return root / name


def write_headers(root: Path, rows: list[tuple[str, str, str]], seen: list[tuple[str, str]]) -> None:
    """Write torchxrayvision's two tables: (image, ViewPosition, PatientOrientation), and (image, PA or L)."""
    head = ("imageid", "View Position", "Patient Orientation")
    write_table(root, "nlmcxr_dicom_metadata.csv", head, rows)
    write_table(root, "nlmcxr_tsne_pa.csv", ("imageid", "tsne-view"), seen)


def write_projections(root: Path, rows: list[tuple[str, str]]) -> Path:
    """Write Kaggle's table: (file name, Frontal or Lateral)."""
    rows = [(name.split("_")[0], name, projection) for name, projection in rows]
    return write_table(root, "indiana_projections.csv", ("uid", "filename", "projection"), rows)
