"""Settings of MedGround: the section of each stage, and constraints between them."""

from cxr.base.settings import Section, constraint, key
from cxr.medground.sources.settings import SourcesSettings
from cxr.medground.stage_settings import (
    DatasetSettings,
    ModelsSettings,
    QueriesSettings,
    RegionsSettings,
    ScoringSettings,
    VerificationSettings,
)


class MedgroundSettings(Section):
    """Settings of MedGround, which writes and verifies referring queries, sentences that select regions of an image."""

    sources: SourcesSettings = key(SourcesSettings, "Images and masks.")
    regions: RegionsSettings = key(RegionsSettings, "Regions, with their boxes and attributes.")
    llm: ModelsSettings = key(ModelsSettings, "Requests to the language models that write and judge queries.")
    queries: QueriesSettings = key(QueriesSettings, "Referring queries.")
    verification: VerificationSettings = key(VerificationSettings, "Verification of the queries.")
    dataset: DatasetSettings = key(DatasetSettings, "The dataset and its exports.")
    scoring: ScoringSettings = key(ScoringSettings, "Scores of models.")
    audit: str = key("", "Path of a review's audit.parquet, to score only queries that experts accepted; empty: all.")

    @constraint
    def _engines_have_their_input(self) -> None:
        queries, verification = self.queries, self.verification
        remedy = "give a model that takes images"
        if queries.engine == "table" and not queries.table:
            raise ValueError("queries.table is empty, but queries.engine is table: name the file of your queries there")
        if queries.engine == "vllm" and not queries.llm.model:
            raise ValueError(f"queries.llm.model is empty, but queries.engine is vllm: {remedy}")
        if verification.judge == "vllm" and not verification.llm.model:
            raise ValueError(f"verification.llm.model is empty, but verification.judge is vllm: {remedy}")
        if queries.llm.form == "question_answer" and queries.selection == "ours":
            raise ValueError(
                "queries.llm.form is question_answer, so the model chooses regions: set queries.selection to model"
            )

    @constraint
    def _another_model_judges(self) -> None:
        queries, verification = self.queries, self.verification
        both_use_models = queries.engine == "vllm" and verification.judge == "vllm"
        is_same = queries.llm.model_revision == verification.llm.model_revision
        if both_use_models and is_same and not verification.same_model:
            raise ValueError(
                f"verification.llm.model is {verification.llm.model!r}, which also writes the queries: give "
                "another model, or set verification.same_model to true"
            )

    @constraint
    def _audited_by_someone(self) -> None:
        if self.dataset.audited and not self.audit:
            raise ValueError("dataset.audited is true, but audit is empty: name the audit.parquet of a review there")
