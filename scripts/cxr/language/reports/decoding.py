"""Conversion of report files to plain text. It handles encodings, markup and the escape sequences of exports."""

import codecs
import html
import re
import unicodedata
from html.parser import HTMLParser

BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16-LE, whose mark is a prefix of this mark
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
NO_TEXT = {
    b"%PDF": "a PDF file",
    b"PK\x03\x04": "a ZIP or Office file",
    b"\xd0\xcf\x11\xe0": "an old Office file",
    b"\x1f\x8b": "a gzip file",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"II*\x00": "a TIFF image",
    b"MM\x00*": "a TIFF image",
}
"""{first bytes: description} of file formats that are not text but are sometimes given as reports."""
_SPACES = re.compile(r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_NO_WIDTH = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\x00]")
_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x01-\x08\x0e-\x1f\x7f-\x9f]")
_LIGATURES = {ord(sign): unicodedata.normalize("NFKC", sign) for sign in "ﬀﬁﬂﬃﬄﬅﬆ"}
_TAG = re.compile(r"<(?:!doctype|\?xml|html|body|head|div|p|br|b|i|span|table|report|text|findings)\b[^<>]*>", re.I)
BREAKS = frozenset(
    ("address", "article", "blockquote", "br", "div", "dd", "dl", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li",
     "ol", "p", "pre", "section", "table", "td", "th", "tr", "ul")
)  # fmt: skip
_HIDDEN = frozenset(("script", "style", "head", "title"))
_RTF = re.compile(r"\\'([0-9a-fA-F]{2})|\\([a-zA-Z]+)(-?\d+)? ?|\\([^a-zA-Z])|([{}])|([\r\n]+)|([^\\{}\r\n]+)")
_RTF_UNSEEN = frozenset(
    ("fonttbl", "colortbl", "stylesheet", "info", "pict", "header", "footer", "listtable", "listoverridetable",
     "generator", "themedata", "datastore", "latentstyles", "xmlnstbl", "rsidtbl", "fldinst")
)  # fmt: skip
_RTF_SIGNS = {"par": "\n", "line": "\n", "sect": "\n", "page": "\n", "row": "\n", "tab": "\t", "cell": "\t",
              "emdash": "—", "endash": "–", "lquote": "'", "rquote": "'", "ldblquote": '"', "rdblquote": '"',
              "bullet": "•", "~": " ", "_": "-"}  # fmt: skip
_EXCEL = re.compile(r"_x([0-9A-Fa-f]{4})_")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
"""Pattern of an HTML entity. The semicolon is required, because "&Lt" may occur in plain text."""
_SCRIPT = re.compile(r"<(script|style)\b[^<>]*>.*?</\1\s*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_BREAK = re.compile(
    r"[ \t]*<(?:br|hr|cr|lf|crlf|/?(?:p|div|li|ul|ol|tr|table|h[1-6]|pre))(?:\s[^<>]*)?/?\s*>[ \t]*\n?", re.IGNORECASE
)
_INLINE_TAG = re.compile(
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


class NoText(Exception):
    """Raised if a report file is not text. The message names the format and quotes no content."""


def decode(data: bytes) -> str:
    """Return the text of a report file. Markup of HTML, XML and RTF is removed. A byte-order mark gives the encoding
    (UTF-8, UTF-16 or UTF-32). Without a mark, many zero bytes mean UTF-16. Any other file is read as UTF-8, or as
    Windows-1252 if that fails. Raises NoText for PDF, Office files and other binary data."""
    for mark, name in NO_TEXT.items():
        if data.startswith(mark):
            raise NoText(f"{name}: save the report as plain text")
    text = _characters(data)
    start = text[:400].lstrip()
    if start.startswith("{\\rtf"):
        return _from_rtf(text.lstrip())
    return _from_markup(text) if start.startswith("<") and _TAG.search(text) else text


def normalize_text(text: str) -> str:
    """Return a text in the Unicode form NFC. Escape sequences are resolved (:func:`unescape`), zero-width characters
    are removed, and all kinds of blanks and line ends become plain ones."""
    text = unescape(text)
    text = _NO_WIDTH.sub("", _SPACES.sub(" ", _LINE_ENDS.sub("\n", text)))
    return unicodedata.normalize("NFC", _CONTROL.sub(" ", text).translate(_LIGATURES))


def _characters(data: bytes) -> str:
    for mark, encoding in BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    zeros = data[:2000].count(0)
    if zeros > 0.2 * len(data[:2000]):
        even = data[0:2000:2].count(0) > data[1:2000:2].count(0)
        return _plausible(data.decode("utf-16-be" if even else "utf-16-le", "replace"))
    try:
        return _plausible(data.decode("utf-8"))
    except UnicodeDecodeError:
        pass
    try:
        return _plausible(data.decode("cp1252"))
    except UnicodeDecodeError:  # five bytes are undefined in Windows-1252
        return _plausible(data.decode("latin-1"))


def _plausible(text: str) -> str:
    """Return the text unchanged. Raises NoText if over 10 % of its first 4,000 characters are control characters."""
    if len(_CONTROL.findall(text[:4000])) > 0.1 * len(text[:4000]):
        raise NoText("binary data: save the report as plain text")
    return text


class _Text(HTMLParser):
    """A parser that collects the text of HTML or XML. Block elements end a line, and scripts and heads are dropped."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self._hidden += tag in _HIDDEN
        if tag in BREAKS:
            self.parts.append("\n")
        if label := dict(attrs).get("label"):  # <AbstractText Label="FINDINGS">
            self.parts.append(f"\n{label}:\n")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in _HIDDEN))
        if tag in BREAKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def _from_markup(text: str) -> str:
    if re.match(r"\s*<\?xml", text) and not re.search(r"<(?:html|body)\b", text, re.I):
        # the elements of an XML report become headings: <Findings>…</Findings>
        text = re.sub(r"<(findings?|impression|conclusion|indication|history|technique|comparison)\b[^>]*>",
                      lambda tag: f"<br>{tag[1]}:<br>", text, flags=re.I)  # fmt: skip
        text = re.sub(r"</[^>]+>", "<br>", text)
    reader = _Text()
    reader.feed(text)
    reader.close()
    return "".join(reader.parts)


def _from_rtf(text: str) -> str:
    parts: list[str] = []
    stack: list[tuple[bool, int]] = []
    unseen, skip, after = False, 1, 0
    for code, word, number, sign, brace, _, plain in _RTF.findall(text):
        if brace == "{":
            stack.append((unseen, skip))
        elif brace == "}":
            unseen, skip = stack.pop() if stack else (False, 1)
        elif sign == "*" or word in _RTF_UNSEEN:
            unseen = True
        elif word == "uc":
            skip = int(number or 1)
        elif unseen:
            continue
        elif word == "u" and number:
            parts.append(chr(int(number) % 0x10000))
            after = skip
            continue
        elif word in _RTF_SIGNS or sign in _RTF_SIGNS:
            parts.append(_RTF_SIGNS.get(word) or _RTF_SIGNS[sign])
        elif sign in ("\\", "{", "}"):
            parts.append(sign)
        elif sign in ("\n", "\r"):
            parts.append("\n")
        elif code:
            parts.append("" if after else bytes.fromhex(code).decode("cp1252", "replace"))
            after = max(0, after - 1)
            continue
        elif plain:
            parts.append(plain[after:])
        after = 0
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def unescape(text: str) -> str:
    """Return a text in which the escape sequences of Excel and HL7 and the entities of HTML are resolved. HTML tags
    that break a line become line ends. Other tags are removed, and scripts also with their content. "<3 mm" stays
    because it is not a tag."""
    if "_x" in text:
        text = _EXCEL.sub(lambda match: chr(int(match[1], 16)), text)
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # surrogate pairs
    if "\\" in text:
        text = _HL7.sub(_hl7, text)
    for _ in range(2):  # some exports escape twice: &amp;gt;
        if "&" in text:
            text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if "<" in text:
        text = _INLINE_TAG.sub("", _BREAK.sub("\n", _SCRIPT.sub(" ", text)))
    return _BRACKETS.sub(" ", text)


def _hl7(match: re.Match) -> str:
    if match[1]:
        return "\n" if match[1] in ("br", "sp", "ce") else " "
    return _HL7_SIGNS[match[2]] if match[2] else bytes.fromhex(match[3]).decode("latin-1")
