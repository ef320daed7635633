"""Forms of the lexicon's phrases: slots filled in, plurals, misspellings."""

import re
from itertools import product

_SLOT = re.compile(r"\{(\w+)\}")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def fill_slots(tree, slots: dict[str, list[str]]):
    """Return a YAML tree in which each "{slot}" phrase of a list is replaced by the phrases it stands for.

    Slots may contain slots. Raises KeyError for an undefined slot.
    """
    if isinstance(tree, dict):
        return {key: fill_slots(value, slots) for key, value in tree.items()}
    if isinstance(tree, list):
        return [
            form
            for item in tree
            for form in (_forms(item, slots) if isinstance(item, str) else [fill_slots(item, slots)])
        ]
    return tree


def _forms(phrase: str, slots: dict[str, list[str]]) -> list[str]:
    names = _SLOT.findall(phrase)
    if not names:
        return [phrase]
    choices = [[form for word in slots[name] for form in _forms(str(word), slots)] for name in names]
    pattern = _SLOT.sub("{}", phrase)
    return list(dict.fromkeys(" ".join(pattern.format(*words).split()) for words in product(*choices)))


def plurals(phrase: str) -> list[str]:
    """Return the plural of a phrase's last word; none for a word that has none, such as "enlarged"."""
    if phrase.endswith(("s", "ed", "ing", "ic", "ous")) and not phrase.endswith("marking"):
        return []
    return [phrase[:-1] + "ies"] if phrase.endswith("y") and phrase[-2] not in "aeiou" else [phrase + "s"]


def misspellings(words: list[str], known_words: set[str]) -> dict[str, str]:
    """Return {misspelt: right} of all words one slip away: a letter missing, added, wrong, or two swapped.

    ``known_words``, and words one slip away from two of ``words``, are not changed.
    """
    word_by_slip: dict[str, str | None] = {}
    for word in words:
        for slip in _slips(word) - known_words - set(words):
            first_word = word_by_slip.get(slip, word)
            is_unambiguous = first_word in (word, word.removesuffix("s"))  # of a word and its plural the word
            word_by_slip[slip] = first_word if is_unambiguous else None
    return {slip: word for slip, word in word_by_slip.items() if word is not None}


def _slips(word: str) -> set[str]:
    parts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    left_out = {a + b[1:] for a, b in parts if b}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in parts if len(b) > 1}
    wrong = {a + letter + b[1:] for a, b in parts if b for letter in _LETTERS}
    added = {a + letter + b for a, b in parts for letter in _LETTERS}
    return left_out | swapped | wrong | added
