"""A tiny Qwen2.5-VL that learns some questions with pictures by heart, in the files that a published model has."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cxr.llm.asking import Question
from cxr.llm.messages import PromptImage, content_parts

SIDE = 112
"""Side that the model shrinks pictures to, px: 16 tokens."""
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Lesson:
    """A question and its answer."""

    question: Question
    answer: str


def train(folder: Path, lessons: Sequence[Lesson], updates: int = 200, seed: int = 0) -> list[float]:
    """Write a model into ``folder`` that has learned the lessons; returns its losses."""
    import torch

    from cxr.vlm.models import load_model, make_tiny

    texts = [
        part for one in lessons for part in [*content_parts(one.question.messages), one.answer] if isinstance(part, str)
    ]
    torch.set_num_threads(1)  # so small a net is slower on two
    make_tiny("qwen25vl", folder, texts, SIDE, seed)
    loaded = load_model("qwen25vl", folder)
    tokenizer = loaded.tokens.tokenizer
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    examples = [_example(loaded, one) for one in lessons]
    model = loaded.model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=updates)
    losses = []
    for step in range(updates):
        chosen = torch.randperm(len(examples), generator=torch.Generator().manual_seed(step))[:8].tolist()
        loss = model(**_batch([examples[number] for number in chosen])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(loss.item())
    model.eval().save_pretrained(folder)
    return losses


def _example(loaded, lesson: Lesson) -> dict:
    pictures = [part for part in content_parts(lesson.question.messages) if isinstance(part, PromptImage)]
    seen = loaded.family.pictures([np.array(picture.to_pil()) for picture in pictures])
    shown = [
        message if isinstance(message["content"], str) else message | {"content": list(map(_part, message["content"]))}
        for message in lesson.question.messages
    ]
    tokenizer = loaded.tokens.tokenizer
    text = tokenizer.apply_chat_template(shown, tokenize=False, add_generation_prompt=True)
    asked, counts = [], iter(seen.tokens)
    for one in loaded.tokens.encode_piece(text):
        asked += [one] * next(counts) if one == loaded.tokens.picture else [one]
    said = [*loaded.tokens.encode_piece(lesson.answer), loaded.tokens.end]
    return {
        "ids": asked + said, "labels": [-100] * len(asked) + said, "tensors": seen.tensors,
        "pad": loaded.tokens.pad, "picture": loaded.tokens.picture,
    }  # fmt: skip


def _part(part: str | PromptImage) -> dict:
    return {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"}


def _batch(examples: Sequence[dict]) -> dict:
    import torch

    longest = max(len(one["ids"]) for one in examples)

    def rows(values: list[list[int]], fill: int) -> torch.Tensor:
        return torch.tensor([row + [fill] * (longest - len(row)) for row in values])

    ids = rows([one["ids"] for one in examples], examples[0]["pad"])
    names = examples[0]["tensors"]
    return {
        "input_ids": ids,
        "labels": rows([one["labels"] for one in examples], -100),
        "attention_mask": rows([[1] * len(one["ids"]) for one in examples], 0),
        "mm_token_type_ids": (ids == examples[0]["picture"]).int(),
    } | {name: torch.cat([one["tensors"][name] for one in examples]) for name in names}
