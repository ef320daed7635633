"""Random numbers of a job: they depend on the seed, the finding and the job's index alone."""

import numpy as np

from cxr.base.seeds import stable_hash
from cxr.base.vocabulary import SIDES

NUMBERS_PER_BOX = 4
"""Random numbers of one try in one lung: centre x, centre y, width, height."""


def draw_numbers(seed: int, finding: str, index: int, tries: int) -> tuple[float, float, np.ndarray]:
    """Return uniform numbers in [0, 1): for the prompt, for the side, and (tries, 2 lungs, 4) for the boxes.

    Numbers of earlier tries do not depend on ``tries``.
    """
    generator = np.random.Generator(np.random.Philox(key=stable_hash(seed, finding, index)))
    numbers = generator.random(2 + tries * len(SIDES) * NUMBERS_PER_BOX)
    return float(numbers[0]), float(numbers[1]), numbers[2:].reshape(tries, len(SIDES), NUMBERS_PER_BOX)
