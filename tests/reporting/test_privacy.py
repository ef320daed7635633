"""The table of what was removed: every study and image is counted once, and no content is in it."""

import numpy as np

from cxr.base.hdf5 import ShardWriter
from cxr.base.tables import read_table, write_corrected, write_lines
from cxr.imaging.frames.burned_in import describe_blackout
from cxr.reporting.privacy import run


def test_the_table_counts_studies_and_images(tmp_path):
    removed = [{"name": 2, "date": 1}, {}, {"name": 1}, {"signature": 1}]
    reports, frames, corrected, table = (str(tmp_path / name) for name in ("r.jsonl", "f.h5", "c.parquet", "t.tsv"))
    write_lines(reports, [{"study_id": f"s{n}", "removed": each} for n, each in enumerate(removed)], checked=True)
    with ShardWriter(frames, attrs={}, empty={"image": ((4, 4), np.uint8)}) as writer:
        for image_id in ("i1", "i2", "i3"):
            writer.append(image_id, image=np.zeros((4, 4), np.uint8))
    notes = [*describe_blackout(3), *describe_blackout(0), "header says that text is burned in"]
    rows = [{"image_id": "i2", "study_id": "s2", "correction": note} for note in notes]
    write_corrected(corrected, rows)
    run(reports=[reports], frames=[frames], corrected=[corrected], table=table)
    assert read_table(table).rows() == [
        ("reports", "date", 1, 1),
        ("reports", "name", 2, 3),
        ("reports", "signature", 1, 1),
        ("reports", "any", 3, 5),
        ("reports", "none", 1, 0),
        ("frames", "burned_in", 1, 3),
        ("frames", "any", 1, 3),
        ("frames", "none", 2, 0),
    ]
