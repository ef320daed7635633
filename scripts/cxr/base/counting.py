"""Singular and plural in messages: "1 image file is", "2 image files are"."""


def count_phrase(number: int, singular: str, plural: str) -> str:
    """Return the number with its singular or plural words: "1 image file is", "2 image files are"."""
    return f"{number} {singular if number == 1 else plural}"
