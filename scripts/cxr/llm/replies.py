"""Replies of a model: reading the text of a server's reply, removing reasoning, and building schemas of answers."""

import hashlib
import json
import re
from dataclasses import dataclass

from cxr.base.errors import redact

REQUEST_WORDS = frozenset((
    "choices", "content", "guided_json", "image_url", "json_object", "json_schema", "max_completion_tokens",
    "max_tokens", "messages", "model", "response_format", "seed", "strict", "temperature", "text",
))  # fmt: skip
"""Keys of requests and replies. They may be quoted from a server's error message; other quotations are redacted."""
MAX_SENTENCE_LENGTH = 200
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_NAMES = r"think|thinking|thought|reasoning|reflection"
_MARKS = (
    (rf"<(?:{_NAMES})>", rf"</(?:{_NAMES})>"),
    (r"\[THINK\]", r"\[/THINK\]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi
    ("<unused94>", "<unused95>"),  # MedGemma
)
"""Start and end marks of a block of reasoning, by model family."""
_OPENING, _CLOSING = ("|".join(marks) for marks in zip(*_MARKS, strict=True))
_BLOCK = re.compile(rf"(?:{_OPENING})(?:(?!{_OPENING}).)*?(?:{_CLOSING})", re.DOTALL | re.IGNORECASE)
_BEFORE = re.compile(rf"\A(?:(?!{_OPENING}).)*(?:{_CLOSING})", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class NoAnswer:
    """A reply without text. ``reason`` says why the text is missing, without quoting the question or the reply."""

    reason: str


Reply = str | NoAnswer


def read_reply(body: str) -> Reply:
    """Return the text in the body of a chat completion, or :class:`NoAnswer` if there is none."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        # quote only the page's title, because the body may contain an answer
        return NoAnswer(
            f"the reply is an HTML page ({first_sentence(body)})" if _TITLE.search(body) else "the reply is not JSON"
        )
    if not isinstance(reply, dict):
        return NoAnswer("the reply is not a JSON object")
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        sentence = _message(reply)
        return NoAnswer(f"the reply has no choices{f' ({_shorten(sentence)})' if sentence else ''}")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        return NoAnswer("the reply has no message")
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is not None:
        return NoAnswer("the message's content is not a text")
    if message.get("reasoning_content") or message.get("reasoning"):
        cut = " before max_tokens" if choices[0].get("finish_reason") == "length" else ""
        return NoAnswer(f"the model reasoned and did not answer{cut}")
    return NoAnswer("the model refused" if message.get("refusal") else "the message has no content")


def first_sentence(body: str) -> str:
    """Return the first sentence of an error reply (JSON, HTML or text), without quotations from the request."""
    try:
        text = _message(json.loads(body))
    except (ValueError, RecursionError):
        title = _TITLE.search(body)
        text = title[1] if title else re.sub(r"<[^<>]*>", " ", body)
    return _shorten(text)


def _message(value: object) -> str:
    while not isinstance(value, str):
        if isinstance(value, list):
            value = value[0] if value else ""
        elif isinstance(value, dict):
            value = next((value[key] for key in ("error", "message", "detail", "msg") if value.get(key)), "")
        else:
            return ""
    return value


def _shorten(text: str) -> str:
    text = redact(" ".join(text.split()), REQUEST_WORDS)
    sentence = re.split(r"[.!?](?=\s|$)", text, maxsplit=1)[0].strip()
    return sentence if len(sentence) <= MAX_SENTENCE_LENGTH else f"{sentence[: MAX_SENTENCE_LENGTH - 2].rstrip()} …"


def without_reasoning(text: str) -> str:
    """Remove closed blocks of reasoning from an answer. The first block of the answer may lack its start mark."""
    if not re.search(_CLOSING, text, re.IGNORECASE):
        return text
    return _BEFORE.sub("", _BLOCK.sub("", text)).strip()


def object_schema(**properties: dict) -> dict:
    """Return the schema of an object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def text_schema(longest: int) -> dict:
    """Return the schema of a text of 1 to ``longest`` characters. The limit stops a model that would never end."""
    return {"type": "string", "minLength": 1, "maxLength": longest}


def texts_key(texts: list[str]) -> str:
    """Return a digest of a list of texts, under which its answer is stored. Equal lists are then asked only once."""
    return hashlib.blake2b("\n".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
