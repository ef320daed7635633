"""Reading what an OpenAI-compatible server sends: an answer's text, or why there is none."""

import json
import re

from cxr.base.errors import redacted
from cxr.llm.asking import NoAnswer, Reply

REQUEST_WORDS = frozenset((
    "choices", "content", "guided_json", "image_url", "json_object", "json_schema", "max_completion_tokens",
    "max_tokens", "messages", "model", "response_format", "seed", "strict", "temperature", "text",
))  # fmt: skip
"""Names of a request's and a reply's parts, which a server's message may quote."""
LONGEST_SENTENCE = 200
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


def read_reply(body: str) -> Reply:
    """Return the text of a chat completion's answer, or :class:`NoAnswer` for a body that holds none."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        # nothing else of it is quoted: it may hold an answer
        return NoAnswer(
            f"the reply is a page ({first_sentence(body)})" if _TITLE.search(body) else "the reply is no JSON"
        )
    if not isinstance(reply, dict):
        return NoAnswer("the reply is no JSON object")
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        sentence = _message(reply)
        return NoAnswer(f"the reply has no choices{f' ({_shortened(sentence)})' if sentence else ''}")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        return NoAnswer("the reply has no message")
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is not None:
        return NoAnswer("the message's content is no text")
    if message.get("reasoning_content") or message.get("reasoning"):
        cut = " before max_tokens" if choices[0].get("finish_reason") == "length" else ""
        return NoAnswer(f"the model reasoned and did not answer{cut}")
    return NoAnswer("the model refused" if message.get("refusal") else "the message has no content")


def first_sentence(body: str) -> str:
    """Return the first sentence of an error's body (JSON, HTML or text), without quotations of what was sent."""
    try:
        text = _message(json.loads(body))
    except (ValueError, RecursionError):
        title = _TITLE.search(body)
        text = title[1] if title else re.sub(r"<[^<>]*>", " ", body)
    return _shortened(text)


def _message(value: object) -> str:
    """Return the message in a JSON body: under error, message or detail, as the servers write it; "" without one."""
    while not isinstance(value, str):
        if isinstance(value, list):
            value = value[0] if value else ""
        elif isinstance(value, dict):
            value = next((value[key] for key in ("error", "message", "detail", "msg") if value.get(key)), "")
        else:
            return ""
    return value


def _shortened(text: str) -> str:
    text = redacted(" ".join(text.split()), REQUEST_WORDS)
    sentence = re.split(r"[.!?](?=\s|$)", text, maxsplit=1)[0].strip()
    return sentence if len(sentence) <= LONGEST_SENTENCE else f"{sentence[: LONGEST_SENTENCE - 2].rstrip()} …"
