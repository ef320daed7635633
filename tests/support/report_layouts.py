"""One report in the layouts and encodings in which hospitals send it."""

import textwrap
from collections.abc import Callable

FINDINGS = (
    "The heart is mildly enlarged. There is a small left pleural effusion with adjacent atelectasis at the left base.",
    "No pneumothorax. No consolidation in the right lung.",
)
IMPRESSION = "Small left effusion. Possible pneumonia in the right upper lobe."
HISTORY = "Cough and fever, rule out pneumonia. History of pulmonary edema."
TEXT = "\n\n".join(FINDINGS)
"""The text of the findings that every layout must give."""


def wrapped(text: str, width: int, indent: str = "", first: str = "") -> str:
    """Wrap each paragraph at a column, as word processors and dictation systems do."""
    return "\n\n".join(
        textwrap.fill(part, width, initial_indent=first if not n else indent, subsequent_indent=indent)
        for n, part in enumerate(text.split("\n\n"))
    )


def _headed(form: str, end: str = "\n\n") -> str:
    names = (("CLINICAL HISTORY", HISTORY), ("TECHNIQUE", "PA and lateral views."), ("COMPARISON", "None."),
             ("FINDINGS", TEXT), ("IMPRESSION", IMPRESSION))  # fmt: skip
    return end.join(form.format(name, name.title(), name.lower(), text=text) for name, text in names) + end


LAYOUTS: dict[str, str] = {
    "column_0": _headed("{0}:\n{text}"),
    "first_line": f"FINDINGS: {TEXT}\nIMPRESSION: {IMPRESSION}\n",
    "title_case": _headed("{1}: {text}"),
    "lower_case": _headed("{2}: {text}"),
    "lone_lines": _headed("{1}\n{text}"),
    "lone_capitals": _headed("{0}\n{text}"),
    "no_colon": _headed("{0} {text}"),
    "tab": _headed("{0}\t{text}"),
    "tab_indented": _headed("\t{0}:\t{text}"),
    "spaces_before_colon": _headed("   {0}   :   {text}"),
    "dash": _headed("{0} - {text}"),
    "markdown_headings": "# Radiology report\n\n" + _headed("## {1}\n\n{text}"),
    "markdown_bold": _headed("**{1}:** {text}"),
    "markdown_bold_outside": _headed("**{1}**: {text}"),
    "markdown_underscores": _headed("__{1}__\n{text}"),
    "underlined": _headed("{0}\n----------\n{text}"),
    "numbered": "1. HISTORY: " + HISTORY + "\n2. FINDINGS: " + TEXT + "\n3. IMPRESSION: " + IMPRESSION,
    "letters": "A) History: " + HISTORY + "\nB) Findings: " + TEXT + "\nC) Conclusion: " + IMPRESSION,
    "one_line": f"CLINICAL HISTORY: {HISTORY} FINDINGS: {TEXT} IMPRESSION: {IMPRESSION}".replace("\n\n", "   "),
    "synonyms": f"Indication: {HISTORY}\n\nRadiological findings:\n{TEXT}\n\nOpinion:\n{IMPRESSION}\n\nAddendum: None.",
    "exam_parenthesis": f"EXAM (XR CHEST): PA.\n\nFINDINGS (PRELIMINARY): {TEXT}\n\nCONCLUSIONS: {IMPRESSION}",
    "wrapped_80": wrapped(_headed("{0}: {text}"), 80),
    "wrapped_40": wrapped(_headed("{0}: {text}"), 40),
    "wrapped_indented": wrapped(_headed("{0}: {text}"), 70, indent="          ", first=" "),
    "mimic": "                                 FINAL REPORT\n" + " \n".join(
        f" {name}:  {wrapped(text, 78, indent=' ').strip()}\n".replace("\n\n", "\n \n")
        for name, text in (("HISTORY", HISTORY), ("FINDINGS", TEXT), ("IMPRESSION", IMPRESSION))
    ),
    "letterhead": "ST. ELSEWHERE HOSPITAL\nDepartment of Radiology\n12 Main St.\n\nPatient: A. B.\nMRN: 12\n"
    "Exam: XR CHEST 2 VIEWS\n\n"
    + _headed("{1}:\n{text}") + "Electronically signed by A. Smith, MD\n",
    "report_title": f"RADIOLOGY REPORT\n\nIndication: {HISTORY}\n\nReport:\n{TEXT}\n\nImpression: {IMPRESSION}",
    "html": "<html><head><title>Findings</title><style>p {color: red}</style></head><body><h2>History</h2><p>" + HISTORY
    + "</p><h2>Findings</h2><p>" + "</p><p>".join(FINDINGS) + "</p><h2>Impression</h2><p>" + IMPRESSION
    + "</p></body></html>",
    "html_breaks": "<p><b>FINDINGS:</b><br>" + "<br><br>".join(FINDINGS) + "<br><b>IMPRESSION:</b>&nbsp;"
    + IMPRESSION + "</p>",
    "xml": '<?xml version="1.0"?><study><history>' + HISTORY + "</history><findings>" + TEXT + "</findings><impression>"
    + IMPRESSION + "</impression></study>",
    "rtf": r"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Findings: Arial;}}{\*\generator X;}\b HISTORY:\b0  " + HISTORY
    + r"\par\par\b FINDINGS:\b0\par " + r"\par\par ".join(FINDINGS) + r"\par\par\b IMPRESSION:\b0\tab "
    + IMPRESSION + r"\par}",
    "odd_blanks": "\u200bFINDINGS:\u00a0" + TEXT.replace(" small ", "\u2009small\u00a0\t ") + "\x0cIMPRESSION:\u202f"
    + IMPRESSION,
    "nulls": "FIND\x00INGS: " + TEXT.replace("pleural", "pleu\u00adral") + "\n\nIMPRESSION: " + IMPRESSION,
    "hyphenated": _headed("{0}:\n{text}").replace("effusion with", "effu-\nsion with").replace(
        "pneumothorax", "pneumo-\nthorax"
    ),
}  # fmt: skip

ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "utf-8": lambda text: text.encode(),
    "utf-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "utf-16 with a mark": lambda text: text.encode("utf-16"),
    "utf-16-le": lambda text: text.encode("utf-16-le"),
    "utf-16-be": lambda text: text.encode("utf-16-be"),
    "utf-32 with a mark": lambda text: text.encode("utf-32"),
    "windows-1252": lambda text: ("Sté. Hôpital – “X”\n\n" + text).encode("cp1252"),
    "crlf": lambda text: text.replace("\n", "\r\n").encode(),
    "cr": lambda text: text.replace("\n", "\r").encode(),
    "line separators": lambda text: text.replace("\n", "\u2028").encode(),
}
