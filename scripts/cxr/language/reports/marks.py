"""Resolving escapes and tags of Excel, HTML and HL7 in exported text."""

import html
import re

_EXCEL = re.compile(r"_x([0-9A-Fa-f]{4})_")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
"""An entity with its semicolon, without which the & of "A&Lt" would match."""
_SCRIPT = re.compile(r"<(script|style)\b[^<>]*>.*?</\1\s*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_BREAK = re.compile(
    r"[ \t]*<(?:br|hr|cr|lf|crlf|/?(?:p|div|li|ul|ol|tr|table|h[1-6]|pre))(?:\s[^<>]*)?/?\s*>[ \t]*\n?", re.IGNORECASE
)
_TAG = re.compile(
    r"</?(?:a|b|i|u|s|em|strong|span|font|small|big|sup|sub|td|th|tbody|thead|center|body|html|head|code|tt)"
    r"(?:\s[^<>]*)?/?>|<!\[CDATA\[|\]\]>",
    re.IGNORECASE,
)
_BRACKETS = re.compile(r"\[<|>\]")
"""Brackets that some dictation systems put around inserted text."""
_HL7 = re.compile(
    r"\\(?:\.(br|sp|ce|sk|in|ti|fi|nf)(?:[+-]?\d{1,3})?\\(?:(?<=br\\)\n)?|([FSTREHN])\\|X((?:[0-9A-Fa-f]{2}){1,8})\\)"
)
_HL7_SIGNS = {"F": "|", "S": "^", "T": "&", "R": "~", "E": "\\", "H": "", "N": ""}


def unescape(text: str) -> str:
    """Return a text with the escapes of Excel, the entities and tags of HTML and the escapes of HL7 resolved.

    Line-breaking tags become line ends; other tags are removed, scripts with their content. Only known tag names count:
    "<3 mm" stays.
    """
    if "_x" in text:
        text = _EXCEL.sub(lambda match: chr(int(match[1], 16)), text)
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # letters of two escapes
    if "\\" in text:
        text = _HL7.sub(_hl7, text)
    for _ in range(2):  # some exports escape twice: &amp;gt;
        if "&" in text:
            text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if "<" in text:
        text = _TAG.sub("", _BREAK.sub("\n", _SCRIPT.sub(" ", text)))
    return _BRACKETS.sub(" ", text)


def _hl7(match: re.Match) -> str:
    if match[1]:
        return "\n" if match[1] in ("br", "sp", "ce") else " "
    return _HL7_SIGNS[match[2]] if match[2] else bytes.fromhex(match[3]).decode("latin-1")
