"""Settings of MedGround: one module for each stage that has settings."""

from cxr.base.settings import Section, constraint, key
from cxr.workflow.settings.medground.dataset import Grounding
from cxr.workflow.settings.medground.queries import Queries
from cxr.workflow.settings.medground.scoring import Scoring
from cxr.workflow.settings.medground.sources import Regions, Sources
from cxr.workflow.settings.medground.verification import Verification


class Medground(Section):
    """MedGround: referring queries about masks, and the verified dataset of them."""

    sources: Sources = key(Sources, "Images and masks.")
    regions: Regions = key(Regions, "From masks to boxes.")
    queries: Queries = key(Queries, "Referring queries.")
    verification: Verification = key(Verification, "Verification of the queries.")
    dataset: Grounding = key(Grounding, "The dataset.")
    scoring: Scoring = key(Scoring, "Scores of models.")
    audit: str = key(
        "",
        "Experts' votes on the test split: audit.parquet of an earlier review of queries. No query depends on it.",
    )

    @constraint
    def _another_model_judges(self) -> None:
        both_use_models = self.queries.engine == "vllm" and self.verification.judge == "vllm"
        if (
            both_use_models
            and not self.verification.same_model
            and self.queries.llm.named == self.verification.llm.named
        ):
            raise ValueError(
                f"verification.llm.model is {self.verification.llm.model!r}, which also words the queries: give "
                "another model, or set verification.same_model to true"
            )

    @constraint
    def _audited_by_someone(self) -> None:
        if self.dataset.audited and not self.audit:
            raise ValueError(
                "dataset.audited is true, but audit names no votes: give the file audit.parquet of a review"
            )
