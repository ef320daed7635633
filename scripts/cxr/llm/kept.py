"""Answers kept on disk while a job asks for many, so that a job that was cut off goes on where it stopped.

A folder holds ``identity``, a digest of all that an answer depends on, and numbered files of checked lines, each
written at once when its questions are answered. Answers stay there after the job: the next one asks only for texts that
are new. Answers of another model, prompt or code are removed.
:func:`answered` keeps lines by the names of texts, :func:`keeping` what a model says to each question.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from cxr.base.errors import UserError
from cxr.base.tables import read_lines, write_lines
from cxr.base.unfinished import facts_of_files, prepare
from cxr.llm.asking import Generate, NoAnswer, Question, Reply
from cxr.llm.messages import parts_of
from cxr.llm.options import ModelOptions
from cxr.llm.pictures import Picture

log = logging.getLogger("cxr")
PATTERN = "answers-*.jsonl"
AT_ONCE = 2048
"""Most questions between two files of a job that asks for many at a time."""
Make = Callable[[list[str]], list[dict]]
"""Takes texts' names and returns a line for each, in order, with its name under the folder's key."""


def identity(options: ModelOptions, code: str) -> str:
    """Return the digest of all that an answer depends on; of a model's folder, names and sizes."""
    facts = facts_of_files(options.model) if Path(options.model).is_dir() else b""
    settings_json = json.dumps(asdict(options) | {"code": code}, sort_keys=True).encode()
    return hashlib.sha256(settings_json + b"\0" + facts).hexdigest()


def answered(names: Sequence[str], make: Make, *, folder: Path, mark: str, at_once: int, key: str) -> dict[str, dict]:
    """Return {name: its line} of every name, once each; asks for those without a line in ``folder``.

    ``mark``: of :func:`identity`; ``at_once``: number of names between two files; ``key``: name's key in a line.
    Raises StoreError for a damaged file.
    """
    unique_names = dict.fromkeys(names)
    line_by_name = {line[key]: line for line in _prepared(folder, mark)}
    missing = [name for name in unique_names if name not in line_by_name]
    if line_by_name:
        log.info("%d of %d answers were there already", len(unique_names) - len(missing), len(unique_names))
    number = _next(folder)
    for place, part in enumerate(parts(missing, at_once)):
        lines = make(part)
        if [line[key] for line in lines] != part:
            raise AssertionError(f"{len(part)} texts were asked, {len(lines)} lines came, or in another order")
        write_lines(folder / f"answers-{number + place:06d}.jsonl", lines, checked=True)
        line_by_name |= {line[key]: line for line in lines}
        log.info("%d of %d answers", min((place + 1) * at_once, len(missing)), len(missing))
    return {name: line_by_name[name] for name in unique_names}


def keeping(generate: Generate, *, folder: Path, mark: str) -> Generate:
    """Return ``generate`` with what it says kept in ``folder``: a question is asked once for each attempt.

    Texts are known by all that is sent (:func:`question_key`), so it makes no difference whose question it was. New
    texts are written call by call, at most ``AT_ONCE`` in a file. ``mark``: of :func:`identity`.

    Raises StoreError for a damaged file.
    """
    reply_by_key = {(line["question"], line["attempt"]): _reply_in(line) for line in _prepared(folder, mark)}
    if reply_by_key:
        log.info("%s holds %d answers of an earlier job", folder, len(reply_by_key))

    def cached_generate(questions: list[Question], attempt: int) -> list[Reply]:
        keys = [question_key(question) for question in questions]
        new = {
            key: question for key, question in zip(keys, questions, strict=True) if (key, attempt) not in reply_by_key
        }
        for part in parts(list(new), AT_ONCE):
            replies = dict(zip(part, generate([new[key] for key in part], attempt), strict=True))
            # a reply without an answer may be the server's passing fault: the next job asks again
            lines = [_line(key, attempt, reply) for key, reply in replies.items() if isinstance(reply, str)]
            if lines:
                write_lines(folder / f"answers-{_next(folder):06d}.jsonl", lines, checked=True)
            reply_by_key.update({(key, attempt): reply for key, reply in replies.items()})
        return [reply_by_key[key, attempt] for key in keys]

    return cached_generate


def resumable(generate: Generate, options: ModelOptions, execution: Mapping) -> Generate:
    """Return the function that asks a model, which goes on where an earlier job stopped.

    execution: the settings' section of that name, and besides ``answers``, the folder of the answers, and ``code``, the
    digest of the code; without a folder nothing is kept.
    """
    if not execution.get("answers"):
        return generate
    mark = identity(options, execution.get("code", ""))
    return keeping(generate, folder=Path(execution["answers"]), mark=mark)


def heard(generate: Generate, lines: list[dict]) -> Generate:
    """Return ``generate``, which adds to ``lines`` what is said: question, attempt, text (:func:`repeating`).

    A reply without an answer has a ``failure``.
    """

    def recording_generate(questions: list[Question], attempt: int) -> list[Reply]:
        replies = generate(questions, attempt)
        pairs = zip(questions, replies, strict=True)
        lines.extend(_line(question_key(question), attempt, reply) for question, reply in pairs)
        return replies

    return recording_generate


def repeating(paths: Sequence[str], rule: str) -> Generate:
    """Return the function that says what files have, which jobs of ``rule`` wrote: no model is asked.

    The function raises UserError for a question that they do not answer.
    """
    replies = {(line["question"], line["attempt"]): _reply_in(line) for path in paths for line in read_lines(path)}

    def replay_generate(questions: list[Question], attempt: int) -> list[Reply]:
        keys = [(question_key(question), attempt) for question in questions]
        missing = sum(key not in replies for key in keys)
        if missing:
            raise UserError(
                f"{rule} answered {len(keys) - missing} of {len(keys)} questions: ask again with "
                f"`snakemake --forcerun {rule}`"
            )
        return [replies[key] for key in keys]

    return replay_generate


def _line(key: str, attempt: int, reply: Reply) -> dict:
    if isinstance(reply, NoAnswer):
        return {"question": key, "attempt": attempt, "text": "", "failure": reply.reason}
    return {"question": key, "attempt": attempt, "text": reply}


def _reply_in(line: dict) -> Reply:
    return NoAnswer(line["failure"]) if "failure" in line else line["text"]


def question_key(question: Question) -> str:
    """Return a digest of all that is sent of a question: roles, texts, pictures, its seed and schema."""
    parts = [part.digest() if isinstance(part, Picture) else f"text {part}" for part in parts_of(question.messages)]
    sent_content = [[message["role"] for message in question.messages], parts, question.schema, question.seed]
    # in the schema's own order, in which a constrained answer is written
    return hashlib.blake2b(json.dumps(sent_content).encode(), digest_size=16).hexdigest()


def _prepared(folder: Path, mark: str) -> Iterator[dict]:
    """Yield the lines of a folder, which is emptied where another job left it."""
    prepare(
        folder, mark, pattern=PATTERN, warning=f"{folder} holds answers of another model, prompt or code: asking again"
    )
    for path in sorted(folder.glob(PATTERN)):
        yield from read_lines(path)


def _next(folder: Path) -> int:
    return 1 + max((int(path.stem.partition("-")[2]) for path in folder.glob(PATTERN)), default=-1)


def parts(names: list[str], at_once: int) -> Iterator[list[str]]:
    """Yield the names in runs of ``at_once``."""
    for first in range(0, len(names), at_once):
        yield names[first : first + at_once]
