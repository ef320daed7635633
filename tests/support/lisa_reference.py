"""The numerical reference of LISA's and ROSALIA's original codes, as our model takes it (rosalia.md section 5)."""

import json
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig

from cxr.ils.rosalia.convert import IGNORED_TENSORS, our_name
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.samples import Batch
from cxr.segmentation.published import make_sam_config

CASES = ("A_square", "B_nonsquare", "C_multi")
IMAGE_ID = 96
"""Stands for the image: the first id after the vocabulary, as the published tokenizer with <image> added has it."""
FEATURES = 256


class Reference:
    """The folder ``lisa_reference`` of the shared fixtures."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.meta = json.loads((folder / "meta.json").read_text())
        self.arrays = np.load(folder / "reference.npz")
        self.state = folder / "state_dict.safetensors"

    def __getitem__(self, key: str) -> torch.Tensor:
        return torch.from_numpy(self.arrays[key])

    def count(self, prefix: str) -> int:
        """How many arrays prefix/0, prefix/1, … there are."""
        return sum(key.startswith(f"{prefix}/") for key in self.arrays.files)

    def configs(self) -> tuple[LlavaConfig, object]:
        """Sizes of the fixture's model."""
        d = self.meta["dims"]
        vision = CLIPVisionConfig(
            hidden_size=d["clip_hidden"], intermediate_size=d["clip_inter"], num_hidden_layers=d["clip_layers"],
            num_attention_heads=d["clip_heads"], image_size=d["clip_img"], patch_size=d["clip_patch"],
        )  # fmt: skip
        text = LlamaConfig(
            vocab_size=d["vocab"], hidden_size=d["hidden"], intermediate_size=d["inter"], rms_norm_eps=1e-6,
            num_hidden_layers=d["layers"], num_attention_heads=d["heads"], max_position_embeddings=d["max_pos"],
        )  # fmt: skip
        llava = LlavaConfig(
            vision_config=vision, text_config=text, image_token_index=IMAGE_ID, projector_hidden_act="linear"
        )
        sam = make_sam_config(
            d["sam_img"], d["sam_patch"], d["sam_embed"], d["sam_depth"], d["sam_heads"], d["sam_window"],
            tuple(d["sam_global"]), d["sam_out"], d["sam_dec_heads"], d["sam_dec_mlp"], d["iou_hidden"],
        )  # fmt: skip
        return llava, sam

    def text_config(self) -> dict:
        """A config.json as LISA's checkpoint folder holds one, of the fixture's sizes."""
        d = self.meta["dims"]
        return {
            "model_type": "llava", "vocab_size": d["vocab"], "hidden_size": d["hidden"], "bos_token_id": 1,
            "intermediate_size": d["inter"], "num_hidden_layers": d["layers"], "num_attention_heads": d["heads"],
            "rms_norm_eps": 1e-6, "max_position_embeddings": d["max_pos"], "eos_token_id": 2, "out_dim": d["sam_out"],
        }  # fmt: skip

    @cached_property
    def seg(self) -> int:
        """Id of [SEG]."""
        return self.meta["ids"]["SEG"]

    def model(self, seg_id: int | None = None) -> Rosalia:
        """The fixture's weights in our model."""
        model = Rosalia.from_configs(*self.configs(), self.seg if seg_id is None else seg_id)
        given = {name: value for name, value in load_file(self.state).items() if not IGNORED_TENSORS.fullmatch(name)}
        model.load_state_dict({our_name(name): value for name, value in given.items()}, strict=True)
        return model.eval()

    def expanded(self, ids: torch.Tensor, fill: int) -> torch.Tensor:
        """Ids or labels (B, L) with the image's place taken by 256 times ``fill``: (B, L + 255)."""
        at = int((self["A_square/in/input_ids"][0] == self.meta["ids"]["IMAGE"]).nonzero()[0, 0])  # same in all
        middle = torch.full((len(ids), FEATURES), fill)
        return torch.cat([ids[:, :at], middle, ids[:, at + 1 :]], 1)

    def batch(self, case: str) -> Batch:
        """A case's inputs."""
        ids, labels = self[f"{case}/in/input_ids"], self[f"{case}/in/labels"]
        offset = self[f"{case}/in/offset"].tolist()
        image_of = torch.repeat_interleave(torch.arange(len(offset) - 1), torch.tensor(offset).diff())
        ends = 1 + torch.stack([(row == self.meta["ids"]["EOS"]).nonzero()[-1, 0] for row in ids]) + FEATURES - 1
        ids = self.expanded(ids, IMAGE_ID)
        per_image = [self[f"{case}/in/masks/{n}"].float() for n in range(self.count(f"{case}/in/masks"))]
        segs = (ids == self.seg).sum(1).tolist()
        masks, place = [], dict.fromkeys(range(len(per_image)), 0)
        for image, n in zip(image_of.tolist(), segs, strict=True):
            masks.append(per_image[image][place[image] : place[image] + n])
            place[image] += n
        return Batch(
            input_ids=ids,
            attention=(torch.arange(ids.shape[1])[None] < ends[:, None]).long(),
            labels=self.expanded(labels, -100),
            images=self[f"{case}/in/images"],
            clip=self[f"{case}/in/images_clip"],
            image_of=image_of,
            masks=masks,
            resized=[tuple(each) for each in self[f"{case}/in/resize"].tolist()],
            original=[tuple(self[f"{case}/in/orig"].tolist()[image]) for image in image_of.tolist()],
            pair_ids=[f"{case}{n}" for n in range(len(ids))],
        )

    def question(self) -> Batch:
        """The one prompt of the case ``evaluate``."""
        image = int(self["evaluate/in/case_image_index"])
        ids = self.expanded(self["evaluate/in/input_ids"], IMAGE_ID)
        return Batch(
            input_ids=ids,
            attention=torch.ones_like(ids),
            labels=torch.full_like(ids, -100),
            images=self["B_nonsquare/in/images"][image : image + 1],
            clip=self["B_nonsquare/in/images_clip"][image : image + 1],
            image_of=torch.tensor([0]),
            masks=[],
            resized=[tuple(self["B_nonsquare/in/resize"][image].tolist())],
            original=[tuple(self["B_nonsquare/in/orig"][image].tolist())],
            pair_ids=["evaluate"],
        )
