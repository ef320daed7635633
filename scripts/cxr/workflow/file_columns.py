"""The columns of the tables that stages write, for docs/reference/files.md."""

import re

from cxr.base import tables
from cxr.base.columns import Columns, markdown
from cxr.ils.evaluation import scoring
from cxr.ils.masks import columns as masks
from cxr.imaging.boxes import detect_boxes
from cxr.imaging.cohort import columns as cohort
from cxr.reporting.ablation import points

TABLES: dict[str, Columns] = {
    "results/cohort/{shard}.parquet": cohort.SHARD,
    "results/cohort/images.parquet": cohort.IMAGES,
    "results/boxes/{shard}.parquet": detect_boxes.COLUMNS,
    "results/masks/{thresholds}/findings.parquet": masks.FINDINGS,
    "results/masks/{thresholds}/{shard}.units.parquet": masks.UNITS,
    "results/masks/{thresholds}/{shard}.studies.parquet": masks.STUDIES,
    "results/masks/{thresholds}/index.parquet": masks.INDEX,
    "results/masks/sweep/{shard}.parquet": masks.SWEEP,
    "results/ablation/points.tsv": points.POINTS,
    "results/evaluation/{run}/pairs.parquet": scoring.COLUMNS,
    "results/<stage>/excluded.parquet": tables.EXCLUDED,
}
"""{path: its columns}: each is declared beside its writer."""
_BLOCK = re.compile(r"<!-- columns of (.+?) -->\n.*?<!-- end -->", re.DOTALL)


def filled(page: str) -> str:
    """Return the page with the columns between its marks: ``<!-- columns of PATH -->`` and ``<!-- end -->``."""
    return _BLOCK.sub(lambda block: f"<!-- columns of {block[1]} -->\n{markdown(TABLES[block[1]])}<!-- end -->", page)
