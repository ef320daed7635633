"""Write the dataset's tables: counts, shares of pairs, Tables 10-12 beside the paper's, and the flow of images."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.paths import group_by_folder
from cxr.base.tables import THRESHOLDS, read_lines, read_table, read_tables, write_table
from cxr.base.vocabulary import LUNG_LESIONS, SPLITS
from cxr.ils.templates import BASIC, GLOBAL, INFERENCE, OPACITY, TYPES
from cxr.reporting.tables import conservation, paper
from cxr.reporting.tables.paper import Counts, PaperTables, pair_column

PAPER_NAMES = {
    "images with pairs": "images",
    "distinct masks": "masks",
    "pairs": "pairs",
    "positive pairs": "positives",
    "negative pairs": "negatives",
}
GLOBAL_SHARE = "global among negatives of {}, %"
INFERENCE_SHARE = "lesion inference among opacity's negatives at a place, %"


@dataclass
class Tally:
    """Numbers of pairs by (split, lesion type, column of the paper's tables), and ids of images, studies and masks."""

    pairs: Counts = field(default_factory=Counter)
    images: set[str] = field(default_factory=set)
    studies: set[str] = field(default_factory=set)
    masks: set[str] = field(default_factory=set)

    def add(self, line: dict) -> None:
        self.pairs[line["split"], line["target"], pair_column(line)] += 1
        self.images.add(line["image_id"])
        self.studies.add(line["study_id"])
        if line["mask_id"] is not None:
            self.masks.add(line["mask_id"])


def count_by_name(tally: Tally, findings: pl.DataFrame, images: int, unedited: int = 0) -> dict[str, int]:
    """Return {name of a count: number} for one threshold set.

    ``findings`` are the findings of all shards, and ``images`` is the number of input images. ``unedited`` is the
    number of images that reached the masks stage without being edited.
    """
    lesions = findings.filter(pl.col("target").is_not_null())
    polarities: Counter[str] = Counter()
    splits: Counter[str] = Counter()
    for (split, _, column), number in tally.pairs.items():
        polarities[column.rpartition("_")[2]] += number
        splits[split] += number
    return {
        "input images": images,
        "images not edited": unedited,
        "images with pairs": len(tally.images),
        "studies with pairs": len(tally.studies),
        "findings of the seven lesion types": len(lesions),
        "findings with a mask": int(lesions["mask_id"].is_not_null().sum()),
        "distinct masks": len(tally.masks),
        "pairs": tally.pairs.total(),
        **{f"{polarity} pairs": polarities[polarity] for polarity in ("positive", "negative")},
        **{f"pairs of {split}": splits[split] for split in SPLITS},
    }


def negative_shares(pairs: Counts) -> dict[str, float | None]:
    """Return {name: percentage} of the shares that settings prescribe; a percentage is None without negatives.

    Each lesion type except cardiomegaly has the share of global pairs (without a location) among its negatives. Opacity
    also has the share of pairs of type ``lesion_inference`` among its negatives with a location.
    """
    kinds = {
        (lesion, kind): sum(pairs[split, lesion, f"{kind}_negative"] for split in SPLITS)
        for lesion in LUNG_LESIONS
        for kind in TYPES
    }
    share_by_name = {
        GLOBAL_SHARE.format(lesion): _percent(kinds[lesion, GLOBAL], sum(kinds[lesion, kind] for kind in TYPES))
        for lesion in LUNG_LESIONS
    }
    places = kinds[OPACITY, BASIC] + kinds[OPACITY, INFERENCE]
    return share_by_name | {INFERENCE_SHARE: _percent(kinds[OPACITY, INFERENCE], places)}


def count_columns(sets: Iterable[str]) -> Columns:
    """Return the columns of the table of counts, among them one for each threshold set."""
    return {
        "count": Column(pl.String, "Name of a count, or of a share in percent."),
        **{name: Column(pl.String, "Value for the threshold set of this name.") for name in sets},
        "configured": Column(
            pl.String, "Share in the settings (`dataset.global_share`, `dataset.opacity_inference_share`)."
        ),
        "paper": Column(pl.String, "The paper's value. Its counts are rounded."),
    }


def _percent(part: int, total: int) -> float | None:
    return 100 * part / total if total else None


def count_table(
    sets: Mapping[str, Tally],
    counts: Mapping[str, Mapping[str, int]],
    global_share: Mapping[str, float],
    opacity_inference_share: float,
    paper: PaperTables,
) -> pl.DataFrame:
    """Return one row per count or share: name, values per threshold set, value in the settings, the paper's value.

    ``sets`` and ``counts`` (of :func:`count_by_name`) are by threshold set. The two shares are settings. Cells are
    strings, because counts and percentages with two decimals are in the same columns.
    """
    rows = [
        (name, *(str(set_counts[name]) for set_counts in counts.values()), "", str(paper.dataset.get(key, "")))
        for name, key in ((name, PAPER_NAMES.get(name)) for name in next(iter(counts.values())))
    ]
    configured = {GLOBAL_SHARE.format(lesion): 100 * share for lesion, share in global_share.items()}
    configured[INFERENCE_SHARE] = 100 * opacity_inference_share
    # the paper's shares are computed from its train split (Table 10)
    train = paper.splits["train"].items()
    printed = Counter({("train", lesion, column): number for lesion, row in train for column, number in row.items()})
    realised = [negative_shares(tally.pairs) for tally in sets.values()]
    rows += [
        (name, *("" if share is None else f"{share:.2f}" for share in shares))
        for name, printed_share in negative_shares(printed).items()
        for shares in [(*(of_set[name] for of_set in realised), configured[name], printed_share)]
    ]
    return pl.DataFrame(rows, schema=schema(count_columns(sets)), orient="row")


def run_counts(
    *,
    images: str,
    excluded: list[str],
    shards: list[str],
    studies: list[str],
    findings: list[str],
    lines: list[str],
    splits_table: str,
    funnel_table: str,
    conservation_table: str,
    counts_table: str,
    thresholds: list[str],
    global_share: dict[str, float],
    opacity_inference_share: float,
) -> None:
    """Write the tables of pairs per split (Tables 10-12), of the flow of images (funnel, conservation) and of counts.

    ``excluded`` are the tables of excluded images of all stages. ``shards`` are the files of the stages before masks,
    in folders named after the stages. ``studies``, ``findings`` and ``lines`` are files in folders named after the
    threshold sets. The shares are settings. Raises StoreError if a stage lost an image, or has a result of an image
    that is not its input.
    """
    printed = paper.read_paper_tables()
    every_image, ledgers = read_table(images), conservation.read_ledgers(excluded)
    shared = conservation.read_shared_flows(every_image, ledgers, group_by_folder(shards))
    lines_by_set, studies_by_set, findings_by_set = map(group_by_folder, (lines, studies, findings))
    all_image_ids = conservation.input_image_ids(every_image)
    columns = {splits_table: paper.PAIRS_BY_SPLIT, funnel_table: conservation.FUNNEL}
    columns |= {conservation_table: conservation.CONSERVATION}
    tables: dict[str, list[pl.DataFrame]] = {path: [] for path in columns}
    sums: dict[str, dict[str, int]] = {}
    tallies: dict[str, Tally] = {}
    for name in thresholds:
        tally = tallies[name] = Tally()
        for path in lines_by_set[name]:
            for line in read_lines(path):
                tally.add(line)
        set_studies, with_pairs = studies_by_set[name], frozenset(tally.images)
        flows = conservation.read_set_flows(shared, ledgers, name, studies=set_studies, with_pairs=with_pairs)
        conservation.require_balance(flows)
        set_tables = (
            paper.tabulate_splits(tally.pairs, printed),
            conservation.tabulate_funnel(flows, all_image_ids, with_pairs),
            conservation.tabulate_conservation(flows),
        )
        for parts, table in zip(tables.values(), set_tables, strict=True):
            parts.append(table.select(pl.lit(name).alias("thresholds"), pl.all()))
        finding_rows = read_tables(findings_by_set[name])
        num_unedited = sum(int(read_table(path)["unedited"].sum()) for path in set_studies)
        sums[name] = count_by_name(tally, finding_rows, len(all_image_ids), num_unedited)
    for path, parts in tables.items():
        write_table(path, pl.concat(parts), THRESHOLDS | columns[path])
    table = count_table(tallies, sums, global_share, opacity_inference_share, printed)
    write_table(counts_table, table, count_columns(tallies))
