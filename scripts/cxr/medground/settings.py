"""Settings of MedGround: the section of each stage, and constraints between them."""

from cxr.base.settings import Section, constraint, key
from cxr.medground.dataset.settings import DatasetSettings
from cxr.medground.queries.settings import QueriesSettings
from cxr.medground.regions.settings import RegionsSettings
from cxr.medground.scoring.settings import ScoringSettings
from cxr.medground.sources.settings import SourcesSettings
from cxr.medground.verification.settings import VerificationSettings


class MedgroundSettings(Section):
    """MedGround: referring queries about masks, and the verified dataset of them."""

    sources: SourcesSettings = key(SourcesSettings, "Images and masks.")
    regions: RegionsSettings = key(RegionsSettings, "From masks to boxes.")
    queries: QueriesSettings = key(QueriesSettings, "Referring queries.")
    verification: VerificationSettings = key(VerificationSettings, "Verification of the queries.")
    dataset: DatasetSettings = key(DatasetSettings, "The dataset.")
    scoring: ScoringSettings = key(ScoringSettings, "Scores of models.")
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
            and self.queries.llm.model_revision == self.verification.llm.model_revision
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
