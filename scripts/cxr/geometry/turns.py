"""The eight rotations and reflections that turn a stored image upright."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Turn:
    """The operations that make a stored image upright: transpose first, then mirror left-right, then top-bottom."""

    transposed: bool = False
    mirrored_x: bool = False
    mirrored_y: bool = False

    def apply(self, stored: np.ndarray) -> np.ndarray:
        """Turn a stored image (rows, columns, …) upright."""
        return self._mirror(stored.swapaxes(0, 1) if self.transposed else stored)

    def undo(self, upright: np.ndarray) -> np.ndarray:
        """Turn an upright image (rows, columns, …) back to its stored orientation."""
        mirrored = self._mirror(upright)
        return mirrored.swapaxes(0, 1) if self.transposed else mirrored

    def shape(self, stored: tuple[int, int]) -> tuple[int, int]:
        """Convert the shape (rows, columns) of the stored image to that of the upright image, or the reverse."""
        return stored[::-1] if self.transposed else stored

    def to_stored(self, upright: tuple[int, int]) -> np.ndarray:
        """Return the affine (2, 3) from an upright image of shape (rows, columns) to the stored image."""
        rows, columns = upright
        mirror = np.array([
            [-1.0 if self.mirrored_x else 1.0, 0.0, columns if self.mirrored_x else 0.0],
            [0.0, -1.0 if self.mirrored_y else 1.0, rows if self.mirrored_y else 0.0],
        ])  # fmt: skip
        return mirror[::-1].copy() if self.transposed else mirror

    def _mirror(self, image: np.ndarray) -> np.ndarray:
        image = image[:, ::-1] if self.mirrored_x else image
        return np.ascontiguousarray(image[::-1] if self.mirrored_y else image)


UPRIGHT = Turn()
EXIF_TURNS = {number: Turn(number > 4, number in (2, 3, 6, 7), number in (3, 4, 7, 8)) for number in range(1, 9)}
"""{value of the EXIF tag Orientation: turn that makes the image upright} (CIPA DC-008, 4.6.5.1)."""


def turn_from_patient_axes(rows: str, columns: str) -> Turn | None:
    """Return the turn after which the patient's left is on the right and the head on top; None if it is unknown.

    ``rows`` and ``columns`` tell to which side of the patient the image's rows and columns run: L, R, H or F
    (PatientOrientation, PS3.3 C.7.6.1.1.1).
    """
    if {rows, columns} & {"L", "R"} and {rows, columns} & {"H", "F"}:
        transposed = rows in ("H", "F")
        return Turn(transposed, mirrored_x="R" in (rows, columns), mirrored_y="H" in (rows, columns))
    return None
