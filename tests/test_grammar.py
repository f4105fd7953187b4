"""Answers inside a grammar: schemas to GBNF, masks on rows of logits, libllama's own sampler."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.engine.engine import Engine
from localspec.engine.grammar import json_grammar
from localspec.engine.grammar.masking import mask, needed
from localspec.engine.llama.grammar import LlamaGrammar
from localspec.engine.llama.vocabulary import Vocabulary
from localspec.engine.llama.weights import Placement, Weights
from localspec.engine.settings import GenerationRequest, LoadSettings, SamplerSettings, SpeculationSettings
from localspec.ground.errors import EngineError, InvalidInput
from tests.bigram import BigramPair
from tests.engine_tools import Answer

SCHEMAS: dict[str, tuple[Any, list[str], list[str]]] = {
    # name: (schema, texts it must take, texts it must not)
    "any": (
        True,
        ['{"a": [1, "x", null, {"b": {}}]}', "12", '"\\u00e9\\n"', "-0.5e+3"],
        ["", "{", "01", "'a'", '"\n"'],
    ),
    "object": ({"type": "object"}, ["{}", '{ "a" : 1,\n  "b":[] }'], ["[]", '{"a"}', '{"a":1,}']),
    "properties": (
        {"properties": {"a": {"type": "integer"}, "b": {"type": "null"}, "c": {"type": "boolean"}}, "required": ["b"]},
        ['{"a":1,"b":null,"c":true}', '{"b":null}', '{"a":-7,"b":null}', '{"b": null, "c": false}'],
        ["{}", '{"a":1}', '{"b":null,"a":1}', '{"b":null,}', '{,"b":null}', '{"b":null,"d":1}', '{"a":1.5,"b":null}'],
    ),
    "all optional": (
        {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}},
        ["{}", '{"a":1}', '{"b":2}', '{"a":1,"b":2}'],
        ['{"a":1 "b":2}', '{,"b":2}', '{"b":2,"a":1}'],
    ),
    "additional": (
        {
            "type": "object",
            "properties": {"a": {"const": 1}},
            "required": ["a"],
            "additionalProperties": {"type": "string"},
        },
        ['{"a":1}', '{"a":1,"x":"y","z":""}'],
        ['{"a":1,"x":2}', '{"x":"y","a":1}'],
    ),
    "only additional": ({"additionalProperties": {"const": 0}}, ["{}", '{"k":0,"l":0}'], ['{"k":1}']),
    "nothing": ({"type": "object", "additionalProperties": False}, ["{}"], ['{"k":1}']),
    "array": (
        {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
        ["[true]", "[true, false,true]"],
        ["[]", "[true,]", "[true,true,true,true]", "[1]"],
    ),
    "exactly none": ({"type": "array", "maxItems": 0}, ["[]", "[ ]"], ["[1]"]),
    "up to two": ({"items": {"const": 1}, "maxItems": 2}, ["[]", "[1]", "[1,1]"], ["[1,1,1]"]),
    "tuple": (
        {"prefixItems": [{"type": "string"}, {"const": 1}], "items": False},
        ['["a", 1]'],
        ["[]", '["a"]', '["a",1,1]'],
    ),
    "lengths": ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"abc"', '"é\\n"'], ['"a"', '"abcd"']),
    "enum": (
        {"enum": ['q"', "b\\s", "é\n", 1.5, None, {"k": [1]}]},
        ['"q\\""', '"b\\\\s"', '"é\\n"', "1.5", "null", '{"k": [1]}'],
        ['"q"', "2"],
    ),
    "types": ({"type": ["string", "null"], "maxLength": 1}, ['"x"', "null"], ['"xy"', "1"]),
    "any of": ({"anyOf": [{"type": "integer"}, {"type": "array"}]}, ["3", "[3]"], ['"x"']),
    "formats": (
        {"type": "string", "format": "date-time"},
        ['"2026-02-28T23:59:59Z"', '"2026-02-28T03:09:09.5+01:30"'],
        ['"2026-13-01T00:00:00Z"', '"x"'],
    ),
    "uuid": ({"format": "uuid"}, ['"0f8fad5b-d9cb-469f-a165-70867728950e"'], ['"0f8fad5b"']),
    "recursive": (
        {
            "$ref": "#/$defs/node",
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                    "required": ["next"],
                }
            },
        },
        ['{"next":null}', '{"next":{"next":null}}'],
        ["{}", '{"next":1}'],
    ),
    "odd names": (
        {"properties": {'a"b\\c é': {"const": 1}}, "required": ['a"b\\c é']},
        ['{"a\\"b\\\\c é":1}'],
        ['{"a":1}'],
    ),
    "words only": ({"title": "T", "description": "d", "default": 3, "$schema": "x"}, ["1", '"x"'], [""]),
}


@pytest.fixture(scope="module")
def vocabulary(bigram: BigramPair) -> Iterator[Vocabulary]:
    weights = Weights(bigram.target, Placement(gpu_layers=0))
    yield weights.vocabulary
    weights.close()


def takes(vocabulary: Vocabulary, source: str, text: str) -> bool:
    """Whether `text` and nothing more is in the grammar; each byte is a token here."""
    grammar = LlamaGrammar(vocabulary, source)
    try:
        for token in vocabulary.tokenize(text, special=False):
            if not grammar.allowed(np.array([token]))[0]:
                return False
            grammar.accept(token)
        return bool(grammar.allowed(np.array(sorted(vocabulary.end_tokens)))[0])
    finally:
        grammar.close()


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_takes_what_it_should_and_nothing_else(vocabulary: Vocabulary, name: str) -> None:
    schema, good, bad = SCHEMAS[name]
    source = json_grammar.from_schema(schema)
    for text in good:
        json.loads(text)
        assert takes(vocabulary, source, text), text
    for text in bad:
        assert not takes(vocabulary, source, text), text


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string", "pattern": "^a"}, "pattern"),
        ({"type": "integer", "minimum": 3}, "minimum"),
        ({"type": "number", "multipleOf": 2}, "multipleOf"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"allOf": [{}]}, "allOf"),
        ({"not": {}}, "not"),
        ({"type": "text"}, '"text"'),
        ({"type": []}, "#/type"),
        ({"enum": []}, "#/enum"),
        ({"type": "string", "format": "email"}, "email"),
        ([], "#"),
        (False, "#"),
        ({"properties": {"a": {"$ref": "#/no"}}}, "#/properties/a/$ref"),
        ({"$ref": "x.json"}, "$ref"),
        ({"type": "string", "maxLength": 10**6}, "maxLength"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "maxLength"),
        ({"required": ["a"]}, "required"),
        ({"properties": []}, "properties"),
        ({"$ref": "#/$defs/a", "type": "string"}, "type"),
    ],
)
def test_what_a_grammar_cannot_hold_is_refused_with_its_place(schema: Any, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        json_grammar.from_schema(schema)
    assert words in caught.value.message


def test_size_and_depth_are_bounded() -> None:
    deep: Any = {"type": "string"}
    for _ in range(50):
        deep = {"type": "array", "items": deep}
    wide = {"properties": {f"p{i}": {"type": "string"} for i in range(1000)}}
    for schema, words in ((deep, "deeply"), (wide, "too big")):
        with pytest.raises(InvalidInput, match=words):
            json_grammar.from_schema(schema)


@pytest.mark.parametrize("source", ["", "root ::= root", 'x ::= "a"', "root ::= missing", 'root ::= "a\0"'])
def test_a_grammar_that_libllama_cannot_use_is_an_error(vocabulary: Vocabulary, source: str) -> None:
    with pytest.raises(InvalidInput):
        LlamaGrammar(vocabulary, source)


def test_control_tokens_are_not_text(vocabulary: Vocabulary) -> None:
    """Their names would be letters to libllama: `<|im_start|>` inside a string."""
    grammar = LlamaGrammar(vocabulary, "root ::= .*")
    controls = [token for token in range(3) if token not in vocabulary.end_tokens]
    assert controls and not grammar.allowed(np.array(controls)).any()
    grammar.close()
    grammar.close()


def test_a_forbidden_token_is_an_error_not_an_abort(vocabulary: Vocabulary) -> None:
    grammar = LlamaGrammar(vocabulary, 'root ::= "ab"')
    for token in (vocabulary.tokenize("b", special=False)[0], min(vocabulary.end_tokens)):
        with pytest.raises(EngineError, match="forbids"):
            grammar.accept(token)
    grammar.accept(vocabulary.tokenize("a", special=False)[0])
    grammar.close()


class Only:
    """A grammar that allows certain ids, and counts what it is asked."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids
        self.asked = 0

    def allowed(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        self.asked += len(ids)
        return np.isin(ids, self._ids)

    def accept(self, token: int) -> None: ...


@pytest.mark.parametrize(
    "settings", [SamplerSettings(temperature=0), SamplerSettings(top_k=5), SamplerSettings(top_k=0)]
)
@pytest.mark.parametrize("ids", [[1, 2, 3], list(range(0, 4000, 7)), [3999]])
def test_the_mask_samples_as_if_every_token_had_been_asked(settings: SamplerSettings, ids: list[int]) -> None:
    from localspec.engine.sampling import Sampler

    row = np.random.default_rng(3).normal(0, 3, 4000).astype(np.float32)
    exact = np.where(np.isin(np.arange(4000), ids), row, -math.inf).astype(np.float32)
    masked = row.copy()
    mask(masked, Only(ids), needed(settings, ()))
    want, got = (Sampler(settings).distribution(r, []) for r in (exact, masked))
    assert np.array_equal(want.ids, got.ids) and np.array_equal(want.probs, got.probs)


def test_few_tokens_are_asked_about_when_the_likely_ones_may_come() -> None:
    row = np.arange(4000, dtype=np.float32)
    grammar = Only(list(range(4000)))
    mask(row.copy(), grammar, needed(SamplerSettings(), ()))
    assert grammar.asked == 512
    assert needed(SamplerSettings(repeat_penalty=1.1), ()) is None
    assert needed(SamplerSettings(logit_bias=((1, 1.0),)), ()) is None
    assert needed(SamplerSettings(temperature=0), (5,)) is None


def test_nothing_allowed_is_an_error() -> None:
    with pytest.raises(EngineError, match="allows no token"):
        mask(np.zeros(10, np.float32), Only([]), 1)


@pytest.fixture(scope="module")
def engine(bigram: BigramPair) -> Iterator[Engine]:
    engine = Engine(LoadSettings(bigram.target, bigram.draft, context=512), 1)
    yield engine
    engine.close()


def test_an_answer_in_a_grammar_is_plain_and_says_why(engine: Engine) -> None:
    request = GenerationRequest(
        prompt="x", grammar='root ::= "yes" | "no"', speculation=SpeculationSettings("model", 4)
    )
    texts = set()
    for seed in range(20):
        sampler = SamplerSettings(seed=seed, temperature=2.0, min_p=0.0)
        answer = Answer(list(engine.generate(GenerationRequest(prompt="x", grammar=request.grammar, sampler=sampler))))
        texts.add(answer.text)
        assert answer.finished.reason == "stop"
    assert texts == {"yes", "no"}
    stats = Answer(list(engine.generate(request))).finished.stats
    assert (stats.state, stats.reason, stats.drafted) == ("off", "grammar", 0)


def test_a_grammar_is_sampled_with_the_targets_own_probabilities(engine: Engine, bigram: BigramPair) -> None:
    """One letter out of four after the same prompt, 4000 times."""
    letters = "aeio"
    counts = dict.fromkeys(letters, 0)
    for seed in range(4000):
        sampler = SamplerSettings(1.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
        request = GenerationRequest(prompt="t", grammar="root ::= [aeio]", sampler=sampler, max_tokens=1)
        counts[Answer(list(engine.generate(request))).text] += 1
    p = np.array([bigram.p[3 + ord("t"), 3 + ord(letter)] for letter in letters])
    expected = 4000 * p / p.sum()
    chi = float(((np.array([counts[letter] for letter in letters]) - expected) ** 2 / expected).sum())
    assert chi < 16.3, "3 degrees of freedom, 0.1 %"


def test_min_tokens_and_a_grammar_cannot_be_combined() -> None:
    with pytest.raises(InvalidInput, match="cannot be combined"):
        GenerationRequest(prompt="x", grammar="root ::= .*", min_tokens=3)
