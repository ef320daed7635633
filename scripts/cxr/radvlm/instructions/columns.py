"""Columns of the tables that the stage radvlm_instructions writes."""

import polars as pl

from cxr.base.columns import Column, Columns

INDEX: Columns = {
    "sample_id": Column(pl.String, "Sample; the rows stand in the order of the lines beside the table."),
    "task": Column(pl.String, "Its task."),
    "source": Column(pl.String, "Its source."),
    "split": Column(pl.String, "Split of the mix."),
    "source_split": Column(pl.String, "Split that its source gives the image."),
    "subject_id": Column(pl.String, "Patient."),
    "image_id": Column(pl.String, "Image."),
    "view": Column(pl.String, "Its view; null if unknown."),
    "unit": Column(pl.String, "What is asked: a fact, or the image."),
    "pass": Column(pl.Int64, "Pass, from 0."),
    "facts": Column(pl.Int64, "Facts it rests on; 0 in a pass that asks the same again."),
}
OUTCOMES: Columns = {
    "source": Column(pl.String, "Source."),
    "what": Column(
        pl.String,
        "What is counted: facts of a kind, texts, conversations, pairs of ILS; of the mix `lines`, `table1` (the lines "
        "that Table 1 tells) and `exchanged` (lines of test, about another picture).",
    ),
    "outcome": Column(
        pl.String,
        "`all`, or what became of it. `used`; of facts `reader`: fused with others, or a single reader's label; of "
        "facts, texts, conversations and pairs `split_conflict`: its patient is in another split of the mix too, "
        "`no_image`: its image is not in the source, or no frame shows it; `no_area`, `nothing_left`, `bad_form`, "
        "`no_boxes`: reasons; `not_in_mix`: no task asks them; `not_drawn`: a limit, or a draw. Of lines `file`, "
        "`train`, `validate`, `test`: they were written, and counted at that; `no_other`: there is no other picture.",
    ),
    "number": Column(pl.Int64, "How many."),
}
TABLE1: Columns = {
    "task": Column(pl.String, "Task; total: all."),
    "source": Column(pl.String, "Source; its format, where none of this format is configured."),
    "facts": Column(pl.Int64, "Facts that the lines of train rest on."),
    "pairs": Column(pl.Int64, "Images with what is asked of them, of train, each once."),
    "passes": Column(pl.Int64, "Passes over the pairs, each with new wordings; null of the total."),
    "lines": Column(pl.Int64, "Lines of train."),
    "validate": Column(pl.Int64, "Lines of validate."),
    "evaluation": Column(pl.Int64, "Lines of test."),
    "paper": Column(pl.Int64, "Lines of train in the paper's mix: pairs times passes; null where it has none."),
    "code": Column(pl.Int64, "The same of its authors' code."),
    "difference": Column(pl.Int64, "Lines less those of the paper; null where it has none."),
    "note": Column(pl.String, "`not configured`: no source of this format is in use."),
}
