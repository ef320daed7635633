"""Guards against prompt injection, so that a report or other external text cannot give orders to a model.

A stage sends a text only if :func:`addresses_the_model` is false, and only after :func:`neutralize`.
"""

import html
import re
import unicodedata
from functools import cache
from pathlib import Path

import yaml

from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("llm/orders.yaml",)
INJECTION = "the text may give orders to the model"  # problem of a text that is therefore not sent

_HARMLESS = str.maketrans("<>[]{}＜＞［］｛｝", "‹›()()‹›()()")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_INVISIBLE = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_TAGS = {0xE0000 + code: code for code in range(0x20, 0x7F)}
"""{code of an invisible Unicode tag: code of the ASCII character that a model may read in its place}."""
_LOOKALIKES = {
    "a": "аАɑαΑᴀ", "b": "вВΒʙ", "c": "сСϲᴄ", "d": "ԁᴅ", "e": "еЕεΕᴇ", "g": "ɡɢ", "h": "һНΗʜ", "i": "іІıɩιΙɪ",
    "j": "јЈᴊ", "k": "кКκΚᴋ", "l": "ӏʟ", "m": "мМΜᴍ", "n": "ηΝոռɴ", "o": "оОοΟσօᴏ", "p": "рРρΡᴘ", "q": "ԛ", "r": "гʀ",
    "s": "ѕЅꜱ", "t": "тТτΤᴛ", "u": "υսᴜ", "v": "νѵᴠ", "w": "ωԝԜᴡ", "x": "хХχΧ", "y": "уУүҮγΥʏ", "z": "Ζᴢ",
    '"': "“”„«»", "'": "‘’‚", "-": "‐‑‒–—",
}  # fmt: skip
"""{Latin character: similar letters of other alphabets, small capitals and signs}."""
_LATIN = {ord(letter): latin for latin, letters in _LOOKALIKES.items() for letter in letters}


def neutralize(text: str) -> str:
    """Replace brackets and control characters, and remove invisible ones, so that a text cannot end the user's turn."""
    return _CONTROL.sub(" ", _INVISIBLE.sub("", text)).translate(_HARMLESS)


def fill_slots(template: str, **slots: str) -> str:
    """Fill the slots ``{name}`` of a template. A slot without a value stays unchanged."""
    # a single pass, so that a slot inside an inserted text, such as "{entity}", is not filled
    return re.sub(r"\{(\w+)\}", lambda match: slots.get(match.group(1), match.group()), template)


def addresses_the_model(text: str, fields: tuple[str, ...] = ()) -> bool:
    """Return whether a text gives orders to a model, or has chat-template marks or the JSON keys ``fields``."""
    return _order_pattern(fields).search(_normalize(text)) is not None


def _normalize(text: str) -> str:
    """Return a text as a model may read it: with decoded tags and entities, Latin letters, and without accents."""
    if "&" in text:
        text = html.unescape(text)
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKD", _INVISIBLE.sub("", text.translate(_TAGS)))
    return "".join(filter(lambda character: not unicodedata.combining(character), text.translate(_LATIN))).casefold()


@cache
def _order_pattern(fields: tuple[str, ...]) -> re.Pattern:
    patterns = yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    if fields:
        patterns = [*patterns, rf"[\"'](?:{'|'.join(map(re.escape, fields))})[\"']\W*:"]
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)
