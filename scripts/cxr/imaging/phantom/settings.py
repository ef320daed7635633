"""Settings of the embedded cohort."""

from cxr.base.settings import Section, constraint, key


class PhantomSettings(Section):
    """The embedded cohort: synthetic X-rays and reports with known ground truth."""

    subjects: int = key(48, "Number of synthetic patients.", ge=6, le=100_000)
    studies: int = key(72, "Number of synthetic studies.", ge=6, le=100_000)
    healthy: int = key(0, "Number of further healthy patients with one PA study each, for semisyn.", ge=0, le=100_000)

    @constraint
    def _every_subject_has_a_study(self) -> None:
        if self.studies < self.subjects:
            raise ValueError(f"studies is {self.studies}, fewer than the {self.subjects} subjects: raise studies")
