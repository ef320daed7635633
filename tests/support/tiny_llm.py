"""A Llama small enough to be trained here, in the files that a published one has: config, safetensors, tokenizer.

It learns some prompts and their answers by heart, so that a real engine can be seen to ask, constrain and decode it.
"""

from pathlib import Path

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<' + message['role'] + '>' + message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SPECIAL = ["<s>", "</s>", "<pad>", "<system>", "<user>", "<assistant>"]
CONTEXT = 16384


MARGIN = 5.0
"""Least lead of each token of an answer over the next, in logits: rounding, and sampling at 0.5, change none."""
ROUND, ROUNDS = 20, 60
"""Steps between two looks at the margin, and the most of such rounds."""


def learnt(factory, lessons: list[tuple[list[dict], str]], steps: int = 120) -> Path:
    """Return a new folder with a model that recites the answers to ``lessons`` (messages, text) on any processor.

    It is trained for ``steps``, and then until each token leads by ``MARGIN``. ``factory``: pytest's of folders.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(2)
    torch.manual_seed(0)
    tokenizer = tokenizer_of(lessons)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=8, max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=1, pad_token_id=2,
        tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps)
    examples = [_example(tokenizer, *lesson) for lesson in lessons]
    for step in range(steps + ROUND * ROUNDS):
        if step == steps:
            optimizer.param_groups[0]["lr"] = 2e-4
        if step >= steps and step % ROUND == 0 and _recites(model, examples):
            break
        chosen = torch.randperm(len(examples), generator=torch.Generator().manual_seed(step))[:12].tolist()
        loss = model(**_batch([examples[number] for number in chosen])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step < steps:
            schedule.step()
    assert _recites(model, examples)
    path = factory.mktemp("llm") / "tiny"
    model.to(torch.bfloat16).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def _recites(model, examples) -> bool:
    """True if each token of each answer leads by ``MARGIN``, with the weights rounded as they are saved."""
    import copy

    import torch

    rounded = copy.deepcopy(model).to(torch.bfloat16).float()
    with torch.inference_mode():
        for example in examples:
            batch = _batch([example])
            answered = batch["labels"][0, 1:] >= 0
            logits, tokens = rounded(**batch).logits[0, :-1][answered], batch["labels"][0, 1:][answered, None]
            next_best = logits.scatter(1, tokens, float("-inf")).amax(1, keepdim=True)
            if (logits.gather(1, tokens) - next_best).min() < MARGIN:
                return False
    return True


def tokenizer_of(lessons):
    """Byte-level BPE that merges across words: the prompts' long rules, equal in all lessons, become a few tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = decoders.ByteLevel()
    rules = {message["content"] for messages, _ in lessons for message in messages if message["role"] == "system"}
    texts = [line for text in sorted(rules) for line in text.split("\n")] * 3
    words = [word for messages, answer in lessons for word in (messages[-1]["content"] + "\n" + answer).split(" ")]
    trainer = trainers.BpeTrainer(
        vocab_size=6000,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([*texts, *words], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", pad_token="<pad>", model_max_length=CONTEXT
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _example(tokenizer, messages: list[dict], answer: str) -> tuple[list[int], list[int]]:
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    asked = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    said = tokenizer(answer + "</s>", add_special_tokens=False)["input_ids"]
    return asked + said, [-100] * len(asked) + said


def _batch(examples) -> dict:
    import torch

    longest = max(len(tokens) for tokens, _ in examples)
    rows = [
        (tokens + [2] * (longest - len(tokens)), labels + [-100] * (longest - len(labels)), len(tokens))
        for tokens, labels in examples
    ]
    mask = [[1] * length + [0] * (longest - length) for _, _, length in rows]
    return {
        "input_ids": torch.tensor([row[0] for row in rows]),
        "labels": torch.tensor([row[1] for row in rows]),
        "attention_mask": torch.tensor(mask),
    }
