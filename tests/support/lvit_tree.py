"""A tree in LViT's layout, made for the tests, and descriptions of its form."""

from pathlib import Path

import cv2
import numpy as np
import openpyxl

BOTH = "Bilateral pulmonary infection, two infected areas, lower left lung and lower right lung."
LEFT = "Unilateral pulmonary infection, one infected area, all left lung."
PLACES = {"left": np.s_[30:50, 10:30], "right": np.s_[30:50, 60:80], "right_below": np.s_[54:62, 60:80]}
"""{side of the picture: pixels of a mask}."""


def workbook(path: Path, rows: list[tuple], title: str = "Sheet1", head: tuple = ("Image", "Description")) -> Path:
    book = openpyxl.Workbook()
    book.active.title = title
    for row in (head, *rows):
        book.active.append(row)
    book.save(path)
    return path


def tree(folder: Path, **parts: list[tuple]) -> Path:
    """Write a tree: {Train, Val, Test: (name, description, sides of the picture with a mask)}."""
    for split, rows in parts.items():
        part = folder / f"{split}_Folder"
        for name in ("img", "labelcol"):
            (part / name).mkdir(parents=True)
        for number, (name, _, sides) in enumerate(rows):
            draw = np.random.default_rng([number, *map(ord, split)])
            mask = np.zeros((64, 96), np.uint8)
            for side in sides:
                mask[PLACES[side]] = 255
            cv2.imwrite(str(part / f"img/{name}.png"), draw.integers(0, 256, (64, 96), np.uint8))
            cv2.imwrite(str(part / f"labelcol/mask_{name}.png"), mask)
        workbook(part / f"{split}_text.xlsx", [(f"mask_{name}.png", text) for name, text, _ in rows])
    return folder
