"""Parser of query texts for stage II of the verification. It turns a text into statements such as "size:small", by the
words of resources/medground/logic.yaml and of the source's classes, and lists words that it does not understand."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

from cxr.base.resources import load_resource
from cxr.medground.logic.atoms import OPPOSITE_SIDE
from cxr.medground.logic.decide import Query, Reference
from cxr.medground.logic.scene import Scene, zone_phrases
from cxr.medground.logic.text import split_phrases

RESOURCE_FILES = ("medground/logic.yaml",)
POSITIONS = {
    "upper": "upper", "top": "upper", "lower": "lower", "bottom": "lower", "left": "left", "right": "right",
    "left-hand": "left", "right-hand": "right", "middle": "middle", "centre": "middle", "center": "middle",
    "central": "middle", "central third": "middle", "middle third": "middle", "edge": "border", "border": "border",
}  # fmt: skip
FROM = {
    "from the left": "leftmost", "from the right": "rightmost", "from the top": "topmost",
    "from the bottom": "lowest",
}  # fmt: skip
IMAGE_NOUNS = {"image", "picture", "frame", "scan", "field"}
STOPS = {",", ".", "?", ";", ":"}


@dataclass(frozen=True)
class Token:
    """A word or phrase of a text. ``kind``: class (a noun), atom, position, side, both, zone, ordinal, nth ("second"),
    from ("from the left"), relation, number, all, image, negation, comparison, silent (ignored), end (punctuation) or
    unread. ``value``: its meaning, such as an atom. ``plural``: whether a noun is plural, None for other words."""

    kind: str
    value: str
    text: str
    plural: bool | None = None


END = Token("end", "", "")


@dataclass
class Claims:
    """Claims of a text about its answer. ``query``: the claims in logical form. ``number``: stated number of regions,
    or 0. ``plural``: whether the noun is plural, None without a noun. ``every``: whether the text says "all". ``both``:
    whether it says both sides. ``nouns``: number of nouns. ``unread``: words that were not understood."""

    query: Query
    number: int = 0
    plural: bool | None = None
    every: bool = False
    both: bool = False
    nouns: int = 0
    unread: list[str] = field(default_factory=list)

    @property
    def atoms(self) -> tuple[str, ...]:
        return self.query.atoms


load_lexicon = partial(load_resource, RESOURCE_FILES[0])  # returns the words of resources/medground/logic.yaml


def _token_by_phrase(scene: Scene) -> dict[str, Token]:
    """Return {phrase: token} of all phrases that are understood in texts about a scene. If a phrase has two meanings,
    the first one is kept."""
    vocabulary, token_by_phrase = load_lexicon(), {}

    def add(words: str, kind: str, value: str, plural: bool | None = None) -> None:
        token_by_phrase.setdefault(words.lower(), Token(kind, value, words, plural))

    for forms in scene.classes.values():
        for word, plural_word in ((forms.one, forms.many), *forms.parents.items()):
            add(word, "class", word, False)
            add(plural_word, "class", word, True)
    for noun, plural_word in vocabulary["generic"].items():
        add(noun, "class", "", False)
        add(plural_word, "class", "", True)
    for zone in scene.zones:
        for words in zone_phrases(zone):
            add(words, "zone", zone)
    axial_kind = "position" if scene.domain == "ct" and scene.radiological else "unread"
    for kind, value_by_word in (
        ("side", _invert(vocabulary["sides"])), ("both", dict.fromkeys(vocabulary["both_sides"], "")),
        ("ordinal", _invert(vocabulary["ordinals"])), ("from", FROM), ("nth", vocabulary["nth"]),
        ("relation", _invert(vocabulary["relations"])), ("atom", _invert(vocabulary["words"])),
        ("all", vocabulary["all"]), ("number", vocabulary["numbers"]), ("image", vocabulary["image_words"]),
        ("position", POSITIONS), (axial_kind, vocabulary["axial"]), ("negation", vocabulary["negations"]),
        ("comparison", vocabulary["comparisons"]), ("silent", vocabulary["silent"].split()),
    ):  # fmt: skip
        for word in value_by_word:  # words without values stand for themselves
            add(str(word), kind, str(value_by_word[word] if isinstance(value_by_word, Mapping) else word))
    return token_by_phrase


def _invert(words_by_value: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return {word: value} from {value: words}. A word with several values gets the first of them."""
    pairs = [(word, value) for value, words in words_by_value.items() for word in words]
    return dict(reversed(pairs))


def tokenize(text: str, scene: Scene) -> list[Token]:
    """Split a text about a scene into tokens, which are the longest phrases with a known meaning, and single words."""
    token_by_phrase = _token_by_phrase(scene)
    longest = max(len(words.split()) for words in token_by_phrase)
    parts, tokens = re.findall(r"[\w&'-]+|[,.?;:!]", text.lower()), []
    for words, token in split_phrases(parts, token_by_phrase, longest):
        unknown_kind = "end" if words in STOPS else "unread"
        tokens.append(Token(unknown_kind, words, words) if token is None else replace(token, text=words))
    return tokens


def read_claims(text: str, scene: Scene) -> Claims:
    """Return what a text claims about the regions of a scene that it asks for."""
    tokens = _resolve_relations(_merge_both_sides(tokenize(text, scene)))
    main_tokens, reference_tokens, name = _split_reference(tokens)
    imaged = any(token.kind == "image" for token in (*main_tokens, *(reference_tokens or ())))
    claims = _claims(main_tokens, scene, imaged)
    if reference_tokens is None:
        return claims
    reference_claims = _claims(reference_tokens, scene, imaged)
    claims.unread += reference_claims.unread
    if reference_claims.nouns == 0 or reference_claims.query.nth > 1 or reference_claims.plural:
        claims.unread.append(f"what is meant by {name}")
        return claims
    reference = Reference(reference_claims.query.atoms, reference_claims.query.ordinal)
    if scene.radiological and name in ("left_of", "right_of") and not imaged:
        name = f"{OPPOSITE_SIDE[name.partition('_')[0]]}_of"
    if name == "nearest_to":
        if claims.query.ordinal:
            claims.unread.append("nearest beside another ordinal")
        claims.query = replace(claims.query, reference=reference, ordinal="nearest")
    else:
        claims.query = replace(claims.query, reference=reference, relation=name)
    return claims


def _reorder_nearest(tokens: list[Token]) -> list[Token]:
    """Return tokens in which "the nearest cell to the rod" has become "the cell nearest to the rod"."""
    for at, word in ((at, token.text) for at, token in enumerate(tokens) if token.text in ("nearest", "closest")):
        noun = next((place for place in range(at + 1, len(tokens)) if tokens[place].kind == "class"), len(tokens))
        if noun + 1 < len(tokens) and tokens[noun + 1].text == "to":
            relation = Token("relation", "nearest_to", f"{word} to")
            return [*tokens[:at], *tokens[at + 1 : noun + 1], relation, *tokens[noun + 2 :]]
    return tokens


def _resolve_relations(tokens: list[Token]) -> list[Token]:
    """Return tokens in which prepositions have one meaning. "In the right lung" after a noun is a relation only if the
    right lung is a class. "Left of the image" is a position, not a relation."""
    new_tokens, has_noun, tokens = [], False, _reorder_nearest(tokens)
    for at, token in enumerate(tokens):
        after = next((later_token for later_token in tokens[at + 1 :] if later_token.text != "the"), END)
        if has_noun and token.text in ("in", "of") and after.kind == "class" and after.value:
            token = Token("relation", "inside", token.text)
        if token.value in ("left_of", "right_of") and after.text in IMAGE_NOUNS:
            new_tokens.append(Token("image", token.text, token.text))  # "on the left of the image"
            token = Token("position", token.value.partition("_")[0], token.text)
        if token.kind == "relation" and token.value == "inside" and after.kind in ("zone", "side"):
            token = Token("silent", token.text, token.text)
        has_noun = has_noun or token.kind == "class"
        new_tokens.append(token)
    return new_tokens


def _split_reference(tokens: list[Token]) -> tuple[list[Token], list[Token] | None, str]:
    """Return (tokens without the first reference, tokens of that reference or None, relation). A reference is the noun
    phrase that follows a relation, such as "the small rod" in "left of the small rod"."""
    for at, token in enumerate(tokens):
        if token.kind != "relation":
            continue
        end = at + 1
        while end < len(tokens) and tokens[end].kind not in ("end", "relation"):
            # "the small one" counts as a noun phrase
            is_pronoun = tokens[end].text == "one" and tokens[end - 1].kind in ("atom", "ordinal")
            noun = Token("class", "", "one", False) if is_pronoun else tokens[end]
            if noun.kind == "class":
                return [*tokens[:at], *tokens[end + 1 :]], [*tokens[at + 1 : end], noun], token.value
            end += 1
        # without a noun, the extent of the reference is unknown
        return [*tokens[:at], Token("unread", token.text, token.text), *tokens[end:]], None, ""
    return tokens, None, ""


def _claims(tokens: Sequence[Token], scene: Scene, imaged: bool) -> Claims:
    """Return the claims of tokens without a reference. ``imaged``: whether left and right are those of the image, not
    of the patient."""
    claims, atoms, ordinal, nth = Claims(Query(())), [], "", 1
    for at, token in enumerate(tokens):
        kind, value = token.kind, token.value
        if kind == "class":
            claims.nouns += 1
            claims.plural = token.plural if claims.plural is None else claims.plural
            atoms += [f"class:{value}"] if value else []
        elif kind == "atom":
            atoms.append(value)
        elif kind in ("zone", "side"):
            atoms.append(f"{kind}:{value}")
        elif kind == "position":
            # unqualified left and right are the patient's on radiographs and axial CT
            is_side = value in OPPOSITE_SIDE and scene.radiological is not None and not imaged
            atoms.append(f"{'side' if is_side else 'position'}:{value}")
        elif kind in ("ordinal", "from"):
            if ordinal and kind == "ordinal":
                claims.unread.append(token.text)
            mirrored = {"leftmost": "rightmost", "rightmost": "leftmost"}
            ordinal = mirrored.get(value, value) if scene.radiological and not imaged else value
        elif kind == "nth":
            nth = int(value)
        elif kind == "number":
            claims.number = int(value)
        elif kind == "all":
            claims.every = True
            claims.plural = True if value in ("every", "each") else claims.plural
        elif kind == "both":
            claims.both = True
        elif kind in ("negation", "comparison", "unread", "relation"):
            # the scope of a negation or comparison is unknown, so the rest is not read
            claims.unread.append(token.text)
            if kind in ("negation", "comparison"):
                for later_token in tokens[at + 1 :]:
                    if later_token.kind == "class" and claims.plural is None:
                        claims.plural, claims.nouns = later_token.plural, claims.nouns + 1
                break
    if nth > 1 and not ordinal:
        claims.unread.append("the side from which to count")
        nth = 1
    claims.query = Query(tuple(dict.fromkeys(atoms)), ordinal=ordinal, nth=nth)
    return claims


def _merge_both_sides(tokens: Sequence[Token]) -> list[Token]:
    """Return tokens in which "left lung and right lung", in either order, is a single claim about both sides."""
    sides = [at for at, token in enumerate(tokens) if token.kind == "side"]
    for first, second in pairwise(sides):
        joined = any(token.text in ("and", ",") for token in tokens[first + 1 : second])
        if joined and tokens[first].value != tokens[second].value:
            both_token = Token("both", "", f"{tokens[first].text} and {tokens[second].text}")
            other_tokens = [token for at, token in enumerate(tokens) if at not in sides]
            return [*other_tokens[:first], both_token, *other_tokens[first:]]
    return list(tokens)
