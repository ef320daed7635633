"""Convert another model's outputs, read by its adapter, to the format that every run is scored from."""

from collections.abc import Iterable, Iterator

from cxr.base.errors import UserError
from cxr.base.hdf5 import ShardWriter, unpack
from cxr.base.jobs import progress
from cxr.base.tables import write_lines
from cxr.ils.evaluation.adapters import Adapter
from cxr.ils.evaluation.mask_files import MaskFault, fit_mask


def convert_outputs(pair_ids: list[str], adapter: Adapter, lines: str, masks: str, size: int, attrs: dict) -> None:
    """Write a model's outputs for the pairs of a split, in their order: JSON Lines, and masks of ``size`` px.

    A pair without output gets no line. A pair with an unusable output gets a line with a ``failure``. Raises UserError
    if no pair has an output.
    """
    with ShardWriter(masks, key="pair_id", attrs=attrs, empty={"mask": ((size, size), bool)}) as writer:
        entries = list(progress(_convert_pairs(pair_ids, adapter, writer, size), len(pair_ids), "pairs with an output"))
        if pair_ids and not entries:
            raise UserError(
                "evaluation.predictions: there is no output for any pair of this split: name each after its pair_id"
            )
    write_lines(lines, entries)


def _convert_pairs(pair_ids: Iterable[str], adapter: Adapter, writer: ShardWriter, size: int) -> Iterator[dict]:
    for pair_id in pair_ids:
        try:
            output = adapter(pair_id)
            packed = None if output.mask is None else fit_mask(output.mask, size)
        except MaskFault as fault:
            if fault.reason != "no_prediction":
                yield {"pair_id": pair_id, "answer": None, "failure": fault.reason, "detail": fault.detail}
            continue
        if packed is not None:
            writer.append(pair_id, mask=unpack(packed))
        entry = {"pair_id": pair_id, "answer": output.answer, "mask": None if packed is None else pair_id}
        yield entry | ({"note": output.note} if output.note else {})
