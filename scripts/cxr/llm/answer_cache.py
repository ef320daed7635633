"""Answers stored on disk, so that an interrupted job can resume, and a later job asks only about new texts.

The folder contains numbered files of model replies, and the file ``identity``, which holds a digest of everything that
an answer depends on.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from cxr.base.errors import UserError
from cxr.base.tables import read_lines, write_lines
from cxr.base.unfinished_work import describe_files, prepare_folder
from cxr.llm.asking import Generate, Question
from cxr.llm.messages import PromptImage, content_parts
from cxr.llm.options import ModelOptions
from cxr.llm.replies import NoAnswer, Reply

log = logging.getLogger("cxr")
PATTERN = "answers-*.jsonl"
MAX_LINES = 2048  # maximum number of replies in a file


def answer_digest(options: ModelOptions, code: str) -> str:
    """Return a digest of everything that an answer depends on. ``code`` is a digest of the project's code. If the model
    is a folder, the digest covers the names and sizes of its files."""
    facts = describe_files(options.model) if Path(options.model).is_dir() else b""
    settings = {field.name: getattr(options, field.name) for field in fields(ModelOptions)}
    settings_json = json.dumps(settings | {"code": code}, sort_keys=True).encode()
    return hashlib.sha256(settings_json + b"\0" + facts).hexdigest()


def cache_replies(generate: Generate, *, folder: Path, digest: str) -> Generate:
    """Return a function like ``generate`` that takes replies from ``folder`` if possible, and stores new ones there.
    Replies that were stored under another ``digest`` are deleted. Raises StoreError if a file of replies is damaged."""
    warning = f"{folder} holds answers of another model, prompt or code: they are deleted, and all questions repeated"
    prepare_folder(folder, digest, pattern=PATTERN, warning=warning)
    stored_lines = [line for path in sorted(folder.glob(PATTERN)) for line in read_lines(path)]
    reply_by_key = {(line["question"], line["attempt"]): _reply_of(line) for line in stored_lines}
    if reply_by_key:
        log.info("%s holds %d answers of an earlier job, which are used again", folder, len(reply_by_key))

    def cached_generate(questions: list[Question], attempt: int) -> list[Reply]:
        keys = [question_key(question) for question in questions]
        pairs = zip(keys, questions, strict=True)
        new = {key: question for key, question in pairs if (key, attempt) not in reply_by_key}
        names = list(new)
        for part in (names[first : first + MAX_LINES] for first in range(0, len(names), MAX_LINES)):
            replies = dict(zip(part, generate([new[key] for key in part], attempt), strict=True))
            # a reply without text is not stored: the server's fault may be temporary, so the next job asks again
            lines = [_line(key, attempt, reply) for key, reply in replies.items() if isinstance(reply, str)]
            if lines:
                numbers = [int(path.stem.partition("-")[2]) for path in folder.glob(PATTERN)]
                write_lines(folder / f"answers-{1 + max(numbers, default=-1):06d}.jsonl", lines, checked=True)
            reply_by_key.update({(key, attempt): reply for key, reply in replies.items()})
        return [reply_by_key[key, attempt] for key in keys]

    return cached_generate


def record_replies(generate: Generate, lines: list[dict]) -> Generate:
    """Return a function like ``generate`` that also appends its replies to ``lines``, for :func:`replay_replies`."""

    def recording_generate(questions: list[Question], attempt: int) -> list[Reply]:
        replies = generate(questions, attempt)
        pairs = zip(questions, replies, strict=True)
        lines.extend(_line(question_key(question), attempt, reply) for question, reply in pairs)
        return replies

    return recording_generate


def replay_replies(paths: Sequence[str], rule: str) -> Generate:
    """Return a function that looks up replies in files written by jobs of the workflow rule ``rule``. It raises
    UserError for a question without a stored reply."""
    replies = {(line["question"], line["attempt"]): _reply_of(line) for path in paths for line in read_lines(path)}

    def replay_generate(questions: list[Question], attempt: int) -> list[Reply]:
        keys = [(question_key(question), attempt) for question in questions]
        missing = sum(key not in replies for key in keys)
        if missing:
            raise UserError(
                f"the files of rule {rule} have answers to only {len(keys) - missing} of {len(keys)} questions: "
                f"make them again with `snakemake --forcerun {rule}`"
            )
        return [replies[key] for key in keys]

    return replay_generate


def _line(key: str, attempt: int, reply: Reply) -> dict:
    if isinstance(reply, NoAnswer):
        return {"question": key, "attempt": attempt, "text": "", "failure": reply.reason}
    return {"question": key, "attempt": attempt, "text": reply}


def _reply_of(line: dict) -> Reply:
    return NoAnswer(line["failure"]) if "failure" in line else line["text"]


def question_key(question: Question) -> str:
    """Return a digest of everything that is sent with a question: roles, texts, images, seed and schema."""
    contents = content_parts(question.messages)
    parts = [part.digest() if isinstance(part, PromptImage) else f"text {part}" for part in contents]
    sent_content = [[message["role"] for message in question.messages], parts, question.schema, question.seed]
    # keys are not sorted, because their order in the schema is their order in a constrained answer
    return hashlib.blake2b(json.dumps(sent_content).encode(), digest_size=16).hexdigest()
