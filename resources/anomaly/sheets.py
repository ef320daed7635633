"""Draw 24 X-rays for visual inspection: image with true lesion, edited image, anomaly map, and organs with boxes.

    python resources/anomaly/sheets.py NETS FOLDER

``NETS``: the folder of train.py's ``--keep``. Each X-ray is edited by the net that was not trained with its patient.
``FOLDER`` gets one page each of X-rays with boxes, with outlines and without a finding. They are sorted by name, and
``EACH`` X-rays of a set are taken at equal distances. Most X-rays with outlines must not be published, so no page
belongs in the repository.
"""

import sys
from pathlib import Path

import cv2
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))
sys.path.insert(0, str(HERE))

import evaluate  # noqa: E402
import films  # noqa: E402
import findings  # noqa: E402
import train  # noqa: E402

from cxr.imaging.anomaly import lite  # noqa: E402
from cxr.imaging.anomaly.engine import compose, edit_region  # noqa: E402

EACH, SIDE, ACROSS = 8, 320, 2
CONFIDENCE = 0.20
"""Minimum confidence of the boxes to draw: tau_conf of Table 7."""


def outlined(picture: np.ndarray, masks: list[np.ndarray], value: int = 255, width: int = 2) -> np.ndarray:
    """Draw the outlines of masks, bool (H, W), on a copy of an image, uint8 (H, W)."""
    picture = picture.copy()
    for mask in masks:
        found, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(picture, found, -1, value, width)
    return picture


def panels(film: films.Film, edit: evaluate.Edit) -> np.ndarray:
    """Return the four images of an X-ray side by side, uint8 (SIDE, 4 * SIDE)."""
    boxes, confidence = findings.detected(film)
    organs = outlined(film.image, list(film.organs.values()), 255, 1)
    for x1, y1, x2, y2 in boxes[confidence >= CONFIDENCE].round().astype(int).tolist():
        cv2.rectangle(organs, (x1, y1), (x2, y2), 0, 2)
    bright = np.clip(edit.anomaly.astype(int) * 4, 0, 255).astype(np.uint8)
    map_ = outlined(bright, [edit_region(film.organs)], 110, 1)
    map_ = outlined(map_, [edit.anomaly >= evaluate.HIGH], 255, 1)
    four = [outlined(film.image, [film.lesion]), edit.edited, map_, organs]
    row = np.hstack([cv2.resize(one, (SIDE, SIDE), interpolation=cv2.INTER_AREA) for one in four])
    cv2.putText(row, f"{film.name[:24]} fold {film.fold}", (4, 12), 0, 0.4, 255, 1)
    return row


def main() -> None:
    """Draw the pages."""
    nets, folder = map(Path, sys.argv[1:3])
    folder.mkdir(parents=True, exist_ok=True)
    editors = [lite.LiteEditor(train.fold_path(nets, fold)) for fold in range(films.FOLDS)]
    for name in train.SETS:
        every = getattr(films, name)()
        chosen = [every[at] for at in np.linspace(0, len(every) - 1, EACH).round().astype(int)]
        rows = []
        for film in chosen:
            proposal = editors[film.fold].edit(film.image, film.organs)
            rows.append(panels(film, evaluate.Edit(*compose(film.image, proposal, edit_region(film.organs)))))
        page = np.vstack([np.hstack(rows[at : at + ACROSS]) for at in range(0, EACH, ACROSS)])
        cv2.imwrite(str(folder / f"{name}.png"), page)


if __name__ == "__main__":
    main()
