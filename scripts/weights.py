"""Weights: what the engines with a large net read, fetched from the hub or converted from files placed by hand."""

from ils.core import run

PARTS = {
    "weights": "weights.stage.run",
    "weights_radedit": "weights.hub.run",
    "weights_sdxl_vae": "weights.hub.run",
    "weights_biovil_t": "weights.hub.run",
    "weights_hybridgnet": "weights.placed.run",
    "weights_cxas": "weights.placed.run",
    "weights_ultralytics": "weights.placed.run",
    "weights_scaled_yolov4": "weights.placed.run",
    "weights_lisa": "weights.folder.run",
    "weights_rosalia": "weights.folder.run",
    "weights_clip": "weights.hub.run",
    "weights_sam": "weights.placed.run",
}
run.part(snakemake, PARTS[snakemake.rule])
