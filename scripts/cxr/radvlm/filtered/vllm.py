"""The engine ``vllm``: a language model edits each report, as in the paper, and the rules engine checks its answer.

The answer must follow a JSON schema. It is invalid if an edited sentence still compares with another image, states
something that its source does not, or is longer than its source. The model is then asked again. A report without a
valid answer after all attempts is excluded (quarantined).
"""

from collections.abc import Mapping, Sequence

from cxr.base.resources import load_resource
from cxr.llm.asking import Answer, Question, ask_each
from cxr.llm.client import connect_resumably
from cxr.llm.guards import INJECTION, addresses_the_model, neutralize
from cxr.llm.messages import fill_prompt
from cxr.llm.options import ModelOptions
from cxr.llm.replies import object_schema, texts_key
from cxr.radvlm.filtered.engine import DROPPED, KEPT, REWRITTEN, Engine, FilteredText, FilterOptions, Sentence
from cxr.radvlm.filtered.rules import SentenceFilter, load_sentence_filter

RESOURCE_FILES = ("radvlm/filter_prompt.yaml", "radvlm/filter.yaml", "lexicon")
GPU = True
FIELDS = ("sentences", "index", "text")
MODEL = "model"  # reason of every sentence that a language model changed


def load(options: FilterOptions, execution: Mapping) -> Engine:
    """Return the engine. Its first question loads the model. Raises UserError if the model cannot be reached."""
    model = ModelOptions(**options.model)
    generate = connect_resumably(model, execution)
    rules = load_sentence_filter(options)

    def filtered(sections: Sequence[Sequence[str]]) -> list[FilteredText]:
        keys = [texts_key(list(section)) for section in sections]
        questions = {key: build_question(section, rules) for key, section in zip(keys, sections, strict=True)}
        answers = ask_each(questions, generate, model)
        return [_build_result(section, answers[key]) for key, section in zip(keys, sections, strict=True)]

    return Engine(filtered, model.name)


def build_question(sentences: Sequence[str], rules: SentenceFilter) -> Question | Answer:
    """Return the question about a section, or at once an Answer if the section is empty or gives orders to a model."""
    if not sentences:
        return Answer(value={"sentences": []})
    if addresses_the_model("\n".join(sentences), FIELDS):
        return Answer(problem=INJECTION)
    numbered_text = "\n".join(f"{number}. {neutralize(text)}" for number, text in enumerate(sentences, start=1))
    messages = fill_prompt(load_resource(RESOURCE_FILES[0]), sentences=numbered_text, number=str(len(sentences)))
    longest = max(map(len, sentences))
    item = object_schema(
        index={"type": "integer", "minimum": 1, "maximum": len(sentences)},
        text={"anyOf": [{"type": "string", "minLength": 1, "maxLength": longest}, {"type": "null"}]},
    )
    number = len(sentences)
    schema = object_schema(sentences={"type": "array", "items": item, "minItems": number, "maxItems": number})
    return Question(messages, schema, lambda answer: find_contradiction(answer["sentences"], sentences, rules))


def find_contradiction(answer: Sequence[Mapping], sentences: Sequence[str], rules: SentenceFilter) -> str | None:
    """Return why an answer is invalid, or None if it is valid. The reason does not quote the report."""
    if [item["index"] for item in answer] != list(range(1, len(sentences) + 1)):
        return "the sentences are not in the order of the source"
    for item, sentence in zip(answer, sentences, strict=True):
        text = item["text"] or ""
        if len(text.split()) > len(sentence.split()):
            return f"sentence {item['index']} is longer than its source"
        if text and rules(text).action != KEPT:
            return f"sentence {item['index']} still has words that the rules remove"
        if text and not rules.claims(text) <= rules.claims(sentence):
            return f"sentence {item['index']} affirms or denies a finding that its source does not"
    return None


def _build_result(sentences: Sequence[str], answer: Answer) -> FilteredText:
    if answer.value is None:
        return FilteredText(problem=answer.problem or "no answer")
    filtered_sentences = []
    for sentence, item in zip(sentences, answer.value["sentences"], strict=True):
        text = " ".join(item["text"].split()) if item["text"] else None
        if text == " ".join(sentence.split()):
            filtered_sentences.append(Sentence(sentence, KEPT))
        else:
            filtered_sentences.append(Sentence(text, REWRITTEN if text else DROPPED, (MODEL,)))
    return FilteredText(tuple(filtered_sentences))
