"""A source's classes in words, as plain dicts that its shards hold."""

from collections.abc import Mapping

from cxr.medground.logic.scene import ClassWords


def class_words(classes: Mapping[str, Mapping]) -> dict[str, ClassWords]:
    """Return {class: words} from {class: {one, many, parents, ask, inside}}; what is left out follows from the name."""
    found = {}
    for name, given in classes.items():
        one = given.get("one") or name
        many = given.get("many") or f"{one}s"
        asked, inside = given.get("ask", True), given.get("inside", True)
        found[name] = ClassWords(one, many, dict(given.get("parents") or {}), asked, inside)
    return found
