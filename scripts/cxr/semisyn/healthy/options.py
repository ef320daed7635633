"""Settings of the stage semisyn_healthy."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class HealthyOptions:
    """Settings of the stage (section ``semisyn.healthy``).

    views, positions, splits: what is accepted. unknown_position: ``auto``, ``keep`` or ``exclude`` an image that does
    not tell how the patient was positioned. exclude_patients: whether a reference stops all films of its patients, or
    its own images alone. labels: ``chexpert`` or ``reports``. devices: ``not_positive``, ``negative`` or ``any``.
    classifier: an engine of this package; threshold: score from which its other engines call a finding positive; own:
    settings of the engine alone. max_lung_iou: largest IoU of the boxes of both lungs. references: {name: format, path,
    image_id} of the human annotations whose patients are left out.
    """

    views: list[str]
    positions: list[str]
    unknown_position: str
    splits: list[str]
    exclude_patients: bool
    labels: str
    devices: str
    classifier: str
    threshold: float
    max_lung_iou: float
    own: dict = field(default_factory=dict)
    references: dict = field(default_factory=dict)
