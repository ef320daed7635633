"""The model ROSALIA: LLaVA answers an instruction, and SAM predicts a mask for each [SEG] in the answer.

The architecture is LISA's. Both parts come from transformers, and this module connects them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import LlavaConfig, LlavaForConditionalGeneration, SamConfig

from cxr.ils.rosalia.config import RosaliaConfig, read_config, write_config
from cxr.ils.rosalia.generation import CHECK_INTERVALS, PrefixCache, PromptState, generate_greedily
from cxr.ils.rosalia.samples import Batch
from cxr.ils.rosalia.tokens import IGNORED
from cxr.nets.weight_files import WeightFiles, fill_module, write_shards
from cxr.segmentation.encoder_cache import DiskCache
from cxr.segmentation.head import build_projection, build_sam, decode_masks, forget_dtypes, make_empty, resize_to_frames

SAM_IMAGES = 4
"""Default number of images per pass of SAM's encoder, which takes much memory (setting ``compute.batches``)."""


def sam_batch(compute: Mapping) -> int:
    """Return the number of images per pass of SAM's encoder; ``compute``: the settings' section of that name."""
    return compute.get("batches", {}).get("sam", SAM_IMAGES)


VISION_TOWER, VISION_ENCODER = "vision_tower", "vision_encoder"
"""Names of the two image encoders, LLaVA's (CLIP) and SAM's."""


@dataclass(frozen=True)
class Views:
    """The outputs of both image encoders for I images."""

    features: torch.Tensor  # LLaVA's features (I, F, H)
    embeddings: torch.Tensor  # SAM's embeddings (I, C, h, w)


@dataclass(frozen=True)
class Output:
    """Output of the model for B samples of L tokens with M [SEG] in total; vocabulary V, hidden size H."""

    hidden: torch.Tensor  # Normalised last hidden states (B, L, H)
    logits: torch.Tensor | None  # Logits of the next token (B, L, V); None unless requested
    text_logits: torch.Tensor  # Logits at the N positions whose next token has a label (N, V)
    text_labels: torch.Tensor  # Labels of these next tokens (N,)
    seg: torch.Tensor  # Embeddings of [SEG] for SAM's decoder: (M, C)
    sample_of: torch.Tensor  # Index of each [SEG]'s sample (M,), ascending
    low_res: torch.Tensor  # Mask logits of SAM's decoder: (M, 1, h, w)
    iou: torch.Tensor  # Mask quality estimated by the decoder: (M, 1)
    masks: list[torch.Tensor]  # Mask logits of each of B samples, resized to its target (n, H, W)


@dataclass(frozen=True)
class Generated:
    """The generated answers of a batch."""

    ids: list[list[int]]  # Token ids of each answer, with the end token if generated
    masks: list[torch.Tensor]  # Mask logits of each answer (n, H, W), one mask per [SEG]


class Rosalia(nn.Module):
    """The network: LLaVA, SAM and the projection from LLaVA's hidden states to SAM's prompts."""

    def __init__(self, config: RosaliaConfig):
        super().__init__()
        forget_dtypes(config.llava, config.sam)
        self.config = config
        self.llava = LlavaForConditionalGeneration(config.llava)
        projector = self.llava.model.multi_modal_projector
        if config.llava.projector_hidden_act == "linear":  # LISA's projector is one linear layer
            projector.linear_2 = nn.Identity()
        self.sam = build_sam(config.sam)
        hidden, out = config.llava.text_config.hidden_size, config.sam.prompt_encoder_config.hidden_size
        self.project = build_projection(hidden, out)
        self.images_at_once: int | None = None
        """Maximum number of images per pass of SAM's encoder, to save memory; None: all images of the batch."""
        self.feature_caches: dict[str, DiskCache] = {}
        """{encoder: cache on disk of its outputs}, with the keys of :meth:`frozen_encoder_shapes`."""

    @classmethod
    def from_configs(cls, llava: LlavaConfig, sam: SamConfig, seg_id: int) -> "Rosalia":
        """Return a model with random weights from torch's generator; ``seg_id``: token id of [SEG]."""
        return cls(RosaliaConfig(llava, sam, seg_id))

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> "Rosalia":
        """Read a model that :meth:`save_pretrained` wrote. Raises UserError if a file is missing or damaged."""
        config = read_config(folder)
        model = make_empty(lambda: cls(config), dtype)
        filled = model.state_dict().keys()
        for prefix, module in model.named_modules():  # allocate tensors; buffers that no file has stay (positions)
            for name, parameter in module.named_parameters(recurse=False):
                setattr(module, name, nn.Parameter(torch.empty_like(parameter, device=device), parameter.requires_grad))
            for name, buffer in module.named_buffers(recurse=False):
                is_filled = f"{prefix}.{name}".lstrip(".") in filled
                setattr(module, name, torch.empty_like(buffer, device=device) if is_filled else buffer.to(device))
        with WeightFiles(folder) as weights:
            fill_module(model, weights, str(folder))
        return model.eval()

    def save_pretrained(self, folder: str | Path, shard_bytes: int = 5 * 10**9) -> None:
        """Write config.json and safetensors files of at most ``shard_bytes`` (or one tensor) each into a folder."""
        tensors = self.state_dict()
        kinds = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
        write_shards(folder, kinds, tensors.__getitem__, shard_bytes)
        write_config(folder, self.config)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.llava.lm_head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the weights."""
        return self.llava.lm_head.weight.dtype

    def _apply(self, fn: Callable, recurse: bool = True) -> "Rosalia":
        """Move or convert all tensors except rotary frequencies, which stay float32 because late tokens need it."""
        rotary = self.llava.model.language_model.rotary_emb
        exact = dict(rotary.named_buffers())
        super()._apply(fn, recurse)
        for name, buffer in exact.items():
            setattr(rotary, name, buffer.to(getattr(rotary, name).device))
        return self

    def checkpoint_gradients(self) -> None:
        """Enable gradient checkpointing, which recomputes activations in training to save memory."""
        for part in (self.llava, self.sam):
            part.gradient_checkpointing_enable({"use_reentrant": False})

    def encode(self, batch: Batch) -> Views:
        """Return the outputs of both encoders for the batch's images. Only trained encoders get gradients."""
        patches = self._encode_with_cache(VISION_TOWER, self._encode_patches, batch.clip, batch)
        embeddings = self._encode_with_cache(VISION_ENCODER, self._encode_for_sam, batch.images, batch)
        return Views(self.llava.model.multi_modal_projector(patches), embeddings)

    def _encode_with_cache(self, name: str, encode: Callable, pixels: torch.Tensor, batch: Batch) -> torch.Tensor:
        cache = self.feature_caches.get(name)
        return encode(pixels) if cache is None else cache.get(batch.views, pixels, encode)

    def frozen_encoder_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return {encoder: shape of its output for one image} for the encoders whose weights are not trained."""
        vision, sam = self.config.llava.vision_config, self.config.sam.vision_config
        side, patches = sam.image_size // sam.patch_size, (vision.image_size // vision.patch_size) ** 2
        encoders = {
            VISION_TOWER: (self.llava.model.vision_tower, (patches, vision.hidden_size)),
            VISION_ENCODER: (self.sam.vision_encoder, (sam.output_channels, side, side)),
        }
        return {name: shape for name, (encoder, shape) in encoders.items() if not _is_trained(encoder)}

    def _encode_patches(self, pixels: torch.Tensor) -> torch.Tensor:
        tower = self.llava.model.vision_tower
        with _gradients_if_trained(tower):
            states = tower(pixels, output_hidden_states=True).hidden_states
            return states[self.config.llava.vision_feature_layer][:, 1:]  # without CLIP's class token

    def _encode_for_sam(self, pixels: torch.Tensor) -> torch.Tensor:
        encoder = self.sam.vision_encoder
        with _gradients_if_trained(encoder):
            some = pixels.split(self.images_at_once or len(pixels))
            return torch.cat([encoder(each).last_hidden_state for each in some])

    def forward(self, batch: Batch, views: Views | None = None, all_logits: bool = False) -> Output:
        """Return the output for prompts with answers, with a mask per [SEG]; ``all_logits``: also return ``logits``."""
        views = views or self.encode(batch)
        # no attention mask: causal attention hides padding at the end anyway, and is faster without one
        model = self.llava.model.language_model
        hidden = model(inputs_embeds=self._embed_batch(batch, views), use_cache=False).last_hidden_state
        learnt = batch.labels[:, 1:] != IGNORED
        # the embedding of [SEG] is taken where [SEG] is predicted, one position before it
        predicts_seg = (batch.input_ids[:, 1:] == self.config.seg_id) & batch.attention[:, 1:].bool()
        sample_of = predicts_seg.nonzero()[:, 0]
        prompts, image_of = hidden[:, :-1][predicts_seg], batch.image_of[sample_of]
        # processes sum gradients in the order of the operations, so all need the same operations; a batch without
        # [SEG] computes a dummy mask with zero gradients
        if spare := self.training and not len(prompts):
            prompts, image_of = hidden[:1, 0], batch.image_of[:1]
        seg = self.project(prompts)
        low_res, iou = decode_masks(self.sam, seg, views.embeddings[image_of])
        text_logits = self.llava.lm_head(hidden[:, :-1][learnt])
        if spare:
            text_logits = text_logits + 0.0 * low_res.sum()
            seg, low_res, iou = seg[:0], low_res[:0], iou[:0]
        return Output(
            hidden=hidden,
            logits=self.llava.lm_head(hidden) if all_logits else None,
            text_logits=text_logits,
            text_labels=batch.labels[:, 1:][learnt],
            seg=seg,
            sample_of=sample_of,
            low_res=low_res,
            iou=iou,
            masks=self._resize_to_targets(low_res, sample_of, batch),
        )

    @torch.no_grad()
    def segment(self, batch: Batch, views: Views | None = None) -> list[torch.Tensor]:
        """Return the mask logits (H, W) of each sample as if its answer began with [SEG], without generating text."""
        views = views or self.encode(batch)
        seg = self.project(self._read_prompts(batch, views, 0).last_hidden)
        low_res, _ = decode_masks(self.sam, seg, views.embeddings[batch.image_of])
        every = torch.arange(len(batch.image_of), device=low_res.device)
        return [masks[0] for masks in self._resize_to_targets(low_res, every, batch)]

    @torch.no_grad()
    def generate(
        self, batch: Batch, max_new_tokens: int, views: Views | None = None, every: int | None = None
    ) -> Generated:
        """Return greedily generated answers with their masks; ``every``: tokens between checks for ended answers."""
        views = views or self.encode(batch)
        prompted = self._read_prompts(batch, views, max_new_tokens)
        ids, states = generate_greedily(
            self.llava.model.language_model, self.llava.lm_head, self._embed_tokens, prompted, self.config.eos_id,
            max_new_tokens, every or CHECK_INTERVALS[self.device.type],
        )  # fmt: skip
        steps_of_rows = [[step for step, token in enumerate(row) if token == self.config.seg_id] for row in ids]
        seg_positions = [(row, step) for row, steps in enumerate(steps_of_rows) for step in steps]
        sample_of, steps = torch.tensor(seg_positions, dtype=torch.long, device=states.device).reshape(-1, 2).T
        seg = self.project(states[sample_of, steps])
        low_res, _ = decode_masks(self.sam, seg, views.embeddings[batch.image_of[sample_of]])
        return Generated(ids, self._resize_to_targets(low_res, sample_of, batch))

    def _embed_tokens(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of tokens. Those of image tokens are arbitrary, because they are replaced later."""
        return self.llava.model.language_model.embed_tokens(ids.masked_fill(ids == self.config.image_id, 0))

    def _embed_batch(self, batch: Batch, views: Views) -> torch.Tensor:
        """Return the embeddings of the batch's tokens, with image features in place of the image tokens."""
        words, places = self._embed_tokens(batch.input_ids), batch.input_ids == self.config.image_id
        features = views.features[batch.image_of].to(words.dtype)
        if bool((places.sum(1) != features.shape[1]).any()):
            raise ValueError(f"every sample must have the image token {features.shape[1]} times")
        return words.masked_scatter(places[:, :, None], features)

    def _read_prompts(self, batch: Batch, views: Views, room: int) -> PromptState:
        """Return the model's state after it has read the prompts. The common prefix of an image's prompts is read once.

        ``room``: number of tokens to generate afterwards. If it is 0, only prefixes that prompts share are cached.
        """
        model = self.llava.model.language_model
        words, lengths = self._embed_batch(batch, views), batch.attention.sum(1)
        last_image = (batch.input_ids == self.config.image_id).nonzero()[:, 1].max()
        shared = int(min(last_image + 1, lengths.min() - 1))
        beginnings = torch.cat([batch.image_of[:, None], batch.input_ids[:, :shared]], 1)
        _, group = beginnings.unique(dim=0, return_inverse=True)
        groups, rows = int(group.max()) + 1, torch.arange(len(words), device=words.device)
        cache = PrefixCache(model.config.num_hidden_layers, room > 0)
        if not room and groups == len(words):
            hidden = model(inputs_embeds=words, use_cache=False).last_hidden_state
            return PromptState(hidden[rows, lengths - 1], cache, lengths, None)
        first = rows.new_full((groups,), len(group)).scatter_reduce(0, group, rows, "amin")
        model(inputs_embeds=words[first, :shared], past_key_values=cache, use_cache=True)
        cache.end_prefixes(group)
        how = {"attention_mask": batch.attention, "past_key_values": cache, "use_cache": True}
        positions = torch.arange(shared, words.shape[1], device=words.device)[None]
        hidden = model(inputs_embeds=words[:, shared:], position_ids=positions, **how).last_hidden_state
        attention_mask = None
        if room and not bool(batch.attention.all()):
            attention_mask = words.new_zeros(len(words), 1, 1, words.shape[1] + room)
            attention_mask[..., : words.shape[1]].masked_fill_(batch.attention[:, None, None] == 0, float("-inf"))
        return PromptState(hidden[rows, lengths - 1 - shared], cache, lengths, attention_mask)

    def _resize_to_targets(self, low_res: torch.Tensor, sample_of: torch.Tensor, batch: Batch) -> list[torch.Tensor]:
        image_of, side = batch.image_of.tolist(), self.config.sam.vision_config.image_size
        pairs = zip(image_of, batch.original, strict=True)
        frames = [(tuple(batch.resized[image]), tuple(target)) for image, target in pairs]
        return resize_to_frames(low_res, sample_of.tolist(), frames, side)


@contextmanager
def _gradients_if_trained(part: nn.Module) -> Iterator[None]:
    """Disable gradients inside the context unless a weight of the part is trained."""
    with torch.set_grad_enabled(torch.is_grad_enabled() and _is_trained(part)):
        yield


def _is_trained(part: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in part.parameters())
