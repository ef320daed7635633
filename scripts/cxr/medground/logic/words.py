"""A source's classes in words, as plain dicts that its shards hold."""

from collections.abc import Mapping

from cxr.medground.logic.scene import ClassWords


def class_words(classes: Mapping[str, Mapping]) -> dict[str, ClassWords]:
    """Return {class: words} from {class: {one, many, parents, ask, inside}}; what is left out follows from the name."""
    noun_by_class = {}
    for name, forms in classes.items():
        singular = forms.get("one") or name
        plural = forms.get("many") or f"{singular}s"
        askable, inside = forms.get("ask", True), forms.get("inside", True)
        noun_by_class[name] = ClassWords(singular, plural, dict(forms.get("parents") or {}), askable, inside)
    return noun_by_class
