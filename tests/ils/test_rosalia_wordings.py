"""The wording of pairs: drawn in training, a persona's in inference."""

from collections import Counter

import pytest

import rosalia_pairs
from cxr.base.errors import UserError
from cxr.base.tables import write_lines
from cxr.ils.rosalia.sampler import Draw
from cxr.ils.rosalia.samples import Pairs
from cxr.ils.rosalia.sources import NO_WORDING, PersonaWording, RandomWording
from cxr.ils.rosalia.tokens import Tokens
from training_runs import data, run_until, train, written

EDEMA = "Segment the edema in the left lung."
TEXTS = {"layperson": ["Show the swelling.", "Mark the swelling."], "ai_developer": ["Run it.", "Mask it."]}
OTHERS = [text for texts in TEXTS.values() for text in texts]


@pytest.fixture
def path(tmp_path) -> str:
    lines = [{"instruction": EDEMA, "persona": persona, "wordings": texts} for persona, texts in TEXTS.items()]
    lines.append({"instruction": "Segment the edema.", "persona": "layperson", "wordings": []})
    write_lines(tmp_path / "wordings.jsonl", lines, checked=True)
    return str(tmp_path / "wordings.jsonl")


def line(number: int = 0, instruction: str = EDEMA) -> dict:
    return {"pair_id": f"p{number}", "instruction": instruction}


def test_the_plain_text_and_its_paraphrases_are_alike(path):
    drawn = RandomWording(path)
    texts = [EDEMA, *OTHERS]
    assert drawn.texts(EDEMA) == texts
    assert [drawn.text(line(), (number + 0.5) / 5) for number in range(5)] == texts
    assert drawn.text(line(), 0.0) == EDEMA
    assert drawn.text(line(), 1 - 2**-53) == texts[-1]
    for instruction in ("Segment the edema.", "Segment what nobody worded."):  # asked as it is
        assert drawn.text(line(0, instruction), 0.99) == instruction


def test_a_pair_has_one_wording_of_a_persona(path):
    persona = PersonaWording(path, "layperson", 7)
    asked = [persona.text(line(number), 0.3) for number in range(200)]
    assert asked == [PersonaWording(path, "layperson", 7).text(line(number), 0.8) for number in range(200)]
    assert all(abs(count - 100) < 5 * 7.1 for count in Counter(asked).values())
    assert Counter(asked).keys() == set(TEXTS["layperson"])
    assert asked != [PersonaWording(path, "layperson", 8).text(line(number), 0) for number in range(200)]
    with pytest.raises(UserError, match=f"^{NO_WORDING}$"):
        persona.text(line(0, "Segment the edema."), 0)
    with pytest.raises(UserError, match="holds no wording of the persona 'medical_expert': run snakemake paraphrase"):
        PersonaWording(path, "medical_expert", 7)


def test_another_file_is_one_sentence(tmp_path):
    write_lines(tmp_path / "other.jsonl", [{"pair_id": "p"}])
    with pytest.raises(UserError, match="holds no wordings of instructions: run snakemake paraphrase"):
        RandomWording(tmp_path / "other.jsonl")


def test_a_draw_says_which_wording_a_sample_has(path, tmp_path):
    tokens = Tokens.prepare(rosalia_pairs.make_word_tokenizer([EDEMA, "[SEG]", *OTHERS]))
    pairs = Pairs(
        **rosalia_pairs.write(tmp_path / "data"),
        tokens=tokens,
        options=rosalia_pairs.OPTIONS,
        wording=RandomWording(path),
    )
    plain = Pairs(**rosalia_pairs.write(tmp_path / "data"), tokens=tokens, options=rosalia_pairs.OPTIONS)
    said = [tokens.decode(pairs[Draw(0, False, (number + 0.5) / 5)].input_ids.clamp(0)) for number in range(5)]
    for text, wording in zip(said, [EDEMA, *OTHERS], strict=True):
        assert wording.rstrip(".") in text.replace(" .", ".")
    assert pairs[0].input_ids.equal(plain[0].input_ids)  # by its row a pair is asked as it is
    one, other = pairs[Draw(0, False, 0.5)], pairs[Draw(0, False, 0.0)]
    assert one.levels.equal(other.levels)
    assert (one.mask == other.mask).all()


def given_with(tmp_path, path: str) -> dict:
    return data(tmp_path / "data") | {"wordings": path}


@pytest.mark.slow
def test_a_training_asks_all_wordings_and_goes_on_after_a_kill_as_before(tmp_path, path, monkeypatch):
    given = given_with(tmp_path, path)
    asked: list[str] = []
    original = RandomWording.text

    def noted(self, pair, chance):
        asked.append(original(self, pair, chance))
        return asked[-1]

    monkeypatch.setattr(RandomWording, "text", noted)
    whole = train(tmp_path / "whole", given)
    assert Counter(asked).keys() == {EDEMA, *OTHERS}
    assert len(asked) == 3 * 14
    run_until(tmp_path / "killed", given, monkeypatch, 7)
    assert written(train(tmp_path / "killed", given)) == written(whole)
    vocabulary = Tokens.load(whole / "model")
    unknown = vocabulary.tokenizer.unk_token_id
    for text in OTHERS:
        assert unknown not in vocabulary.tokenizer(text, add_special_tokens=False).input_ids, text
    plain = train(tmp_path / "plain", {name: value for name, value in given.items() if name != "wordings"})
    assert written(plain)["updates.tsv"] != written(whole)["updates.tsv"]


def test_a_training_whose_wordings_changed_begins_anew(tmp_path, path, monkeypatch):
    given = given_with(tmp_path, path)
    run_until(tmp_path / "run", given, monkeypatch, 7)
    mark = (tmp_path / "run/checkpoint/identity").read_text()
    fewer = tmp_path / "fewer.jsonl"
    write_lines(fewer, [{"instruction": EDEMA, "persona": "layperson", "wordings": ["Show it."]}])
    run_until(tmp_path / "run", given | {"wordings": str(fewer)}, monkeypatch, 1)
    assert (tmp_path / "run/checkpoint/identity").read_text() != mark
