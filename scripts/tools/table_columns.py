"""Print the columns of result tables: name, type, unit and meaning.

python scripts/tools/table_columns.py [FILE …]

FILE is a path from ``results`` on, such as results/cohort/images.parquet. Without one, the command prints the paths of
all tables.
"""

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cxr.base import review_units, source_files, tables
from cxr.base.columns import Columns, markdown_table
from cxr.base.conservation import CONSERVED
from cxr.base.exclusions import STAGES
from cxr.ils.dataset import make_pairs, mimic_ils
from cxr.ils.evaluation import evaluate, paraphrases, summary
from cxr.ils.masks import make_masks as masks
from cxr.ils.masks.sweep import SWEEP
from cxr.ils.paraphrase import make_paraphrases
from cxr.ils.training import columns as training
from cxr.imaging.boxes import detect_boxes
from cxr.imaging.cohort import rows as cohort
from cxr.imaging.phantom import make_phantom
from cxr.imaging.weights import manifest as weights
from cxr.instructions import mimic_ils as mimic_ils_layout
from cxr.language.reports import compare_engines, summarize_reports
from cxr.medground.dataset import language, make_dataset, paper_comparison, scispacy_entities, tokens
from cxr.medground.queries import make_queries, written_queries
from cxr.medground.regions import make_regions
from cxr.medground.scoring import scores as medground_scores
from cxr.medground.sources import read_sources
from cxr.medground.verification import verify
from cxr.radvlm.conversations import converse
from cxr.radvlm.evaluation import columns as radvlm_scores
from cxr.radvlm.evaluation import conservation as radvlm_conservation
from cxr.radvlm.filtered import filter_texts
from cxr.radvlm.instructions import join_parts as radvlm_mix
from cxr.radvlm.instructions import write_part as radvlm_part
from cxr.radvlm.sources import facts as radvlm_sources
from cxr.radvlm.sources.read_sources import CONFLICTS
from cxr.reporting import privacy
from cxr.reporting.ablation import points
from cxr.reporting.agreement import compare
from cxr.reporting.page import costs, versions
from cxr.reporting.release import parquet
from cxr.reporting.review import decoys, make_pages, merge, rates, unit_pages
from cxr.reporting.review import queries as review_queries
from cxr.reporting.tables import conservation, counts, paper, truth
from cxr.semisyn.dataset import job_tables as semisyn_dataset
from cxr.semisyn.detection import paper_tables
from cxr.semisyn.detectors import reference_images, train_detector
from cxr.semisyn.editing import edit_images
from cxr.semisyn.healthy import select_healthy
from cxr.semisyn.placement import plan_jobs
from cxr.semisyn.priors import write_priors
from cxr.semisyn.prompts import mine_prompts
from cxr.semisyn.readers import reading
from cxr.semisyn.realism import measure, score
from cxr.semisyn.references import PREDICTIONS
from cxr.semisyn.selection import select_configs
from cxr.vlm import columns as vlm

MIX = "results/radvlm/instructions/{mix}"
TABLES: dict[str, Columns] = {
    "results/phantom/manifest.csv": make_phantom.MANIFEST,
    "results/cohort/{shard}.parquet": cohort.SHARD,
    "results/cohort/images.parquet": cohort.IMAGES,
    "results/cohort/files_read/cohort.parquet": source_files.COLUMNS,
    "results/reports/reading.tsv": summarize_reports.READING,
    "results/reports/unknown_words.tsv": summarize_reports.WORDS,
    "results/reports/agreement.tsv": compare_engines.AGREEMENT,
    "results/reports/disagreements.tsv": compare_engines.DISAGREEMENTS,
    "results/weights/manifest.tsv": weights.COLUMNS,
    "results/boxes/{shard}.parquet": detect_boxes.COLUMNS,
    "results/masks/{thresholds}/findings.parquet": masks.FINDINGS,
    "results/masks/{thresholds}/{shard}.units.parquet": masks.UNITS,
    "results/masks/{thresholds}/{shard}.studies.parquet": masks.STUDIES,
    "results/masks/{thresholds}/index.parquet": mimic_ils_layout.INDEX,
    "results/masks/sweep/{shard}.parquet": SWEEP,
    "results/dataset/{thresholds}/dropped.parquet": make_pairs.DROPPED,
    "results/dataset/mimic_ils/pictures.tsv": mimic_ils.IMAGES,
    "results/paraphrase/{thresholds}/counts.tsv": make_paraphrases.COUNTS,
    "results/training/{run}/updates.tsv": training.UPDATES,
    "results/training/{run}/epochs.tsv": training.EPOCHS,
    "results/evaluation/{run}/pairs.parquet": evaluate.PAIRS,
    "results/evaluation/{run}/scores.tsv": summary.SCORES,
    "results/evaluation/{run}/text.tsv": summary.TEXTS,
    "results/evaluation/{run}/counts.tsv": evaluate.COUNTS,
    "results/evaluation/{run}/excluded.parquet": evaluate.EXCLUDED,
    "results/evaluation/comparison.tsv": evaluate.COMPARISON,
    "results/evaluation/paraphrases.tsv": paraphrases.COLUMNS,
    "results/semisyn/healthy/images.parquet": select_healthy.HEALTHY,
    "results/semisyn/healthy/funnel.tsv": select_healthy.FUNNEL,
    "results/semisyn/dataset/images.parquet": semisyn_dataset.IMAGES,
    "results/semisyn/dataset/boxes.parquet": semisyn_dataset.BOXES,
    "results/semisyn/dataset/jobs.parquet": semisyn_dataset.JOBS,
    "results/semisyn/dataset/conservation.tsv": semisyn_dataset.CONSERVATION,
    "results/semisyn/dataset/counts.tsv": semisyn_dataset.COUNTS,
    "results/semisyn/prompts/prompts.tsv": mine_prompts.PROMPTS,
    "results/semisyn/prompts/counts.tsv": mine_prompts.COUNTS,
    "results/semisyn/priors/samples.parquet": write_priors.SAMPLES,
    "results/semisyn/priors/fits.tsv": write_priors.FITS,
    "results/semisyn/priors/zones.tsv": write_priors.ZONES,
    "results/semisyn/priors/symmetry.tsv": write_priors.SYMMETRY,
    "results/semisyn/placement/plan.parquet": plan_jobs.PLAN,
    "results/semisyn/placement/{shard}.parquet": plan_jobs.BOXES,
    "results/semisyn/editing/{engine}/{config}/{shard}.boxes.parquet": edit_images.BOXES,
    "results/semisyn/realism/{config}/{shard}.jobs.parquet": measure.JOBS,
    "results/semisyn/realism/{config}/{shard}.measures.parquet": measure.BOXES,
    "results/semisyn/realism/{shard}.reference.parquet": measure.REFERENCE,
    "results/semisyn/realism/{config}/scores.tsv": score.SCORES,
    "results/semisyn/realism/{config}/replicates.parquet": score.REPLICATES,
    "results/semisyn/selection/scores.tsv": select_configs.SCORES,
    "results/semisyn/selection/grid.tsv": select_configs.GRID,
    "results/semisyn/readers/units.parquet": reading.UNITS,
    "results/semisyn/readers/shown.parquet": review_units.REVIEW_UNITS,
    "results/semisyn/readers/items.parquet": unit_pages.ITEMS,
    "results/semisyn/readers/answers.parquet": unit_pages.ANSWERS,
    "results/semisyn/readers/table7.tsv": reading.TABLE7,
    "results/semisyn/readers/agreement.tsv": reading.AGREEMENT,
    "results/semisyn/references/{reference}/images.parquet": reference_images.PICTURES,
    "results/semisyn/detectors/roles.tsv": reference_images.ROLES,
    "results/semisyn/detectors/{run}.s{number}/updates.tsv": train_detector.UPDATES,
    "results/semisyn/detectors/{run}.s{number}/epochs.tsv": train_detector.EPOCHS,
    "results/semisyn/detectors/{run}.s{number}/pools.tsv": train_detector.POOLS,
    "results/semisyn/detection/{run}.s{number}/{reference}.parquet": PREDICTIONS,
    "results/semisyn/detection/scores.tsv": paper_tables.SCORES,
    "results/semisyn/detection/differences.tsv": paper_tables.DIFFERENCES,
    "results/semisyn/detection/table1.tsv": paper_tables.TABLE_1,
    "results/semisyn/detection/table2.tsv": paper_tables.BY_FINDING,
    "results/medground/sources/{source}/images.parquet": read_sources.IMAGES,
    "results/medground/regions/{source}/{shard}.parquet": make_regions.REGIONS,
    "results/medground/regions/{source}/{shard}.dropped.parquet": make_regions.DROPPED,
    "results/medground/regions/{source}/{shard}.shifted.parquet": make_regions.SHIFTED,
    "results/medground/queries/{source}/{shard}.unasked.parquet": make_queries.UNASKED,
    "results/medground/queries/unused.parquet": written_queries.UNUSED,
    "results/medground/verification/passrate.tsv": verify.PASSED,
    "results/medground/verification/passrate_groups.tsv": verify.GROUPED,
    "results/medground/verification/rejected.parquet": verify.REJECTED,
    "results/medground/dataset/units.parquet": make_dataset.UNITS,
    "results/medground/dataset/statistics.tsv": make_dataset.STATISTICS,
    "results/medground/dataset/conservation.tsv": make_dataset.CONSERVATION,
    "results/medground/dataset/sources.tsv": paper_comparison.SOURCE_COUNTS,
    "results/medground/dataset/paper.tsv": paper_comparison.PAPER_COMPARISON,
    "results/medground/dataset/tokens.tsv": tokens.TOKENS,
    "results/medground/dataset/entities.parquet": scispacy_entities.ENTITIES,
    "results/medground/dataset/language.tsv": language.LANGUAGE,
    "results/medground/dataset/words.tsv": language.WORDS,
    "results/review/queries/audit.parquet": review_queries.AUDIT,
    "results/review/queries/table7.tsv": review_queries.TABLE7,
    "results/review/queries/agreement.tsv": review_queries.AGREEMENT,
    "results/medground/scoring/{run}/queries.parquet": medground_scores.QUERIES,
    "results/medground/scoring/{run}/scores.tsv": medground_scores.SCORES,
    "results/medground/scoring/{run}/sensitivity.tsv": medground_scores.SENSITIVITY,
    "results/medground/scoring/comparison.tsv": medground_scores.COMPARISON,
    "results/radvlm/sources/{source}/images.parquet": radvlm_sources.IMAGE_COLUMNS,
    "results/radvlm/sources/{source}/facts.parquet": radvlm_sources.FACT_COLUMNS,
    "results/radvlm/sources/{source}/counts.tsv": radvlm_sources.COUNT_COLUMNS,
    "results/radvlm/sources/{source}/conservation.tsv": CONSERVED,
    "results/radvlm/sources/split_conflicts.parquet": CONFLICTS,
    "results/radvlm/filtered/{source}/agreement.tsv": filter_texts.AGREEMENT,
    "results/radvlm/conversations/{source}/outcomes.tsv": converse.OUTCOMES,
    f"{MIX}/table1.tsv": radvlm_mix.TABLE1,
    f"{MIX}/conservation.tsv": radvlm_part.OUTCOMES,
    f"{MIX}/parts/{{source}}.index.parquet": radvlm_part.INDEX,
    "results/radvlm/evaluation/{run}/scores.tsv": radvlm_scores.SCORES,
    "results/radvlm/evaluation/{run}/samples.parquet": radvlm_scores.SAMPLES,
    "results/radvlm/evaluation/{run}/counts.tsv": radvlm_scores.COUNTS,
    "results/radvlm/evaluation/conservation.tsv": radvlm_conservation.CONSERVATION,
    "results/radvlm/evaluation/judge_check.tsv": radvlm_scores.CHECK,
    "results/radvlm/evaluation/comparison.tsv": radvlm_scores.TABLES,
    "results/vlm/{run}/updates.tsv": vlm.UPDATES,
    "results/vlm/{run}/left_out.parquet": vlm.EXCLUDED,
    "results/vlm/{run}/conservation.tsv": CONSERVED,
    "results/vlm/{run}/probed.tsv": vlm.PROBES,
    "results/vlm/{run}/answers/{set}.unused.parquet": vlm.UNUSED,
    "results/vlm/sets/{set}.tsv": vlm.SELECTED,
    "results/ablation/points.tsv": points.POINTS,
    "results/tables/privacy.tsv": privacy.TABLE,
    "results/tables/splits.tsv": tables.THRESHOLDS | paper.PAIRS_BY_SPLIT,
    "results/tables/funnel.tsv": tables.THRESHOLDS | conservation.FUNNEL,
    "results/tables/conservation.tsv": tables.THRESHOLDS | conservation.CONSERVATION,
    "results/tables/counts.tsv": counts.count_columns(["{thresholds}"]),
    "results/tables/recall.tsv": paper.RECALL,
    "results/tables/truth.tsv": tables.THRESHOLDS | truth.TRUTH,
    "results/page/versions.tsv": versions.VERSIONS,
    "results/page/costs.tsv": costs.COSTS,
    "results/page/jobs.tsv": costs.JOBS,
    "results/agreement/scores.tsv": compare.SCORES,
    "results/agreement/population.tsv": compare.POPULATION,
    "results/agreement/excluded.parquet": compare.EXCLUSIONS,
    "results/agreement/{reference}/values.parquet": compare.VALUES,
    "results/review/{thresholds}/units.parquet": make_pages.UNITS,
    "results/review/{thresholds}/items.parquet": make_pages.ITEMS,
    "results/review/{thresholds}/decoys.parquet": decoys.DECOYS,
    "results/review/{thresholds}/judgements.parquet": merge.JUDGEMENTS,
    "results/review/{thresholds}/experts.tsv": rates.EXPERTS,
    "results/review/{thresholds}/lesions.tsv": rates.LESION_RATES,
    "results/review/{thresholds}/agreement.tsv": rates.AGREEMENT,
    "results/review/{thresholds}/reliability.tsv": rates.RELIABILITY,
    "results/review/{thresholds}/rejected.tsv": merge.REJECTED,
    "results/review/{thresholds}/counts.tsv": merge.COUNTS,
    "results/release/{thresholds}/data/{split}-*.parquet": parquet.PAIRS,
    "results/release/{thresholds}/images/{split}-*.parquet": parquet.IMAGES,
    "results/<stage>/excluded.parquet": tables.EXCLUDED,
    "results/frames/{shard}.corrected.parquet": tables.CORRECTED,
}
"""{path: columns}. The module that writes a table declares its columns."""
SAME_COLUMNS = {
    **{
        f"results/cohort/files_read/{path}.parquet": "results/cohort/files_read/cohort.parquet"
        for path in (
            "frames/{shard}",
            "reports/{shard}",
            "reports_structured/all",
            "radvlm/{source}/{shard}",
            "semisyn/{reference}",
        )
    },
    "results/semisyn/detection/table4.tsv": "results/semisyn/detection/table2.tsv",
    "results/masks/{thresholds}/{shard}.findings.parquet": "results/masks/{thresholds}/findings.parquet",
    "results/semisyn/healthy/{shard}.parquet": "results/semisyn/healthy/images.parquet",
    "results/semisyn/realism/{config}/jobs.parquet": "results/semisyn/realism/{config}/{shard}.jobs.parquet",
    "results/semisyn/realism/{config}/{engine}/{shard}.boxes.parquet": "results/boxes/{shard}.parquet",
    **{
        f"results/semisyn/{path}.excluded.parquet": "results/<stage>/excluded.parquet"
        for path in (
            "editing/{engine}/{config}/{shard}",
            "realism/{config}/{engine}/{shard}.organs",
            "realism/{config}/{engine}/{shard}.boxes",
        )
    },
    "results/semisyn/references/{reference}/frames.excluded.parquet": "results/<stage>/excluded.parquet",
    "results/semisyn/references/{reference}/frames.corrected.parquet": "results/frames/{shard}.corrected.parquet",
    "results/semisyn/references/{reference}/organs.excluded.parquet": "results/<stage>/excluded.parquet",
    "results/medground/dataset/shown.parquet": "results/semisyn/readers/shown.parquet",
    "results/review/queries/items.parquet": "results/semisyn/readers/items.parquet",
    "results/review/queries/answers.parquet": "results/semisyn/readers/answers.parquet",
    "results/masks/mimic_ils/index.parquet": "results/masks/{thresholds}/index.parquet",
    "results/agreement/{reference}/excluded.parquet": "results/agreement/excluded.parquet",
    **{
        f"results/medground/scoring/{{run}}/zero_shot/{name}": f"results/medground/scoring/{{run}}/{name}"
        for name in ("queries.parquet", "scores.tsv", "sensitivity.tsv")
    },
    "results/medground/verification/{source}/{shard}.rejected.parquet": (
        "results/medground/verification/rejected.parquet"
    ),
    "results/medground/sources/{source}/{shard}.images.parquet": "results/medground/sources/{source}/images.parquet",
    "results/medground/sources/{source}/{shard}.excluded.parquet": "results/<stage>/excluded.parquet",
    "results/medground/sources/{source}/excluded.parquet": "results/<stage>/excluded.parquet",
    "results/medground/regions/{source}/{shard}.excluded.parquet": "results/<stage>/excluded.parquet",
    **{
        f"results/radvlm/sources/own/{shard}{name}": f"results/radvlm/sources/{{source}}/{name}"
        for name in ("images.parquet", "facts.parquet", "counts.tsv", "conservation.tsv")
        for shard in ("", "{shard}.")
    },
    "results/radvlm/sources/own/excluded.parquet": "results/<stage>/excluded.parquet",
    "results/radvlm/sources/{source}/{shard}.parquet": "results/cohort/{shard}.parquet",
    "results/radvlm/sources/{source}/frames/{shard}.excluded.parquet": "results/<stage>/excluded.parquet",
    "results/radvlm/sources/{source}/frames/{shard}.corrected.parquet": "results/frames/{shard}.corrected.parquet",
    "results/radvlm/sources/own/{shard}.excluded.parquet": "results/<stage>/excluded.parquet",
    "results/radvlm/sources/{source}/excluded.parquet": "results/<stage>/excluded.parquet",
    "results/radvlm/filtered/{source}/excluded.parquet": "results/<stage>/excluded.parquet",
    "results/radvlm/conversations/{source}/excluded.parquet": "results/<stage>/excluded.parquet",
    "results/radvlm/conversations/{source}/{part}.excluded.parquet": "results/<stage>/excluded.parquet",
    "results/radvlm/conversations/{source}/{part}.outcomes.tsv": "results/radvlm/conversations/{source}/outcomes.tsv",
    f"{MIX}/parts/{{source}}.excluded.tsv": f"{MIX}/conservation.tsv",
    "results/<stage>/{shard}.excluded.parquet": "results/<stage>/excluded.parquet",
    "results/<stage>/{thresholds}/excluded.parquet": "results/<stage>/excluded.parquet",
    "results/<stage>/{thresholds}/{shard}.excluded.parquet": "results/<stage>/excluded.parquet",
    **{
        f"results/evaluation/{{run}}/{{persona}}/{name}": f"results/evaluation/{{run}}/{name}"
        for name in ("pairs.parquet", "scores.tsv", "text.tsv", "counts.tsv", "excluded.parquet")
    },
}
"""{path: path in :data:`TABLES` of a table with the same columns}."""


def path_of(file: str) -> str:
    """Return the path in :data:`TABLES` that matches ``file``, a path from ``results`` on, or "" if none does."""
    paths = [path for path in (*TABLES, *SAME_COLUMNS) if re.fullmatch(_pattern(path), file)]
    nearest = max(paths, key=lambda path: len(re.sub(r"{.*?}|<.*?>", "", path)), default="")
    return SAME_COLUMNS.get(nearest, nearest)


def _pattern(path: str) -> str:
    parts = re.split(r"({.*?}|<stage>|[*])", path)
    patterns = {"{shard}": r"\d+", "<stage>": f"(?:{'|'.join(STAGES)}|semisyn/[a-z]+)", "*": "[^/]*"}
    return "".join(patterns.get(part, "[^/]+") if at % 2 else re.escape(part) for at, part in enumerate(parts))


def main() -> int:
    """Print the columns of the files that the command line names. Return 1 if one is not a table of a stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    files = parser.parse_args().files
    if not files:
        print("\n".join(sorted(TABLES)))
    for file in files:
        path = file if file in TABLES else path_of(file)
        if not path:
            print(f"{file} is not a table of a stage: give no FILE to list all tables", file=sys.stderr)
            return 1
        print(f"{path}\n\n{markdown_table(TABLES[path])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
