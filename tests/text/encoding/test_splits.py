"""Texts that go to the model as they are have the ids that the whole tokenizer gives them."""

import json as jsons
import re
from array import array
from collections.abc import Callable

import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import example, given, reject
from hypothesis import strategies as st

from mlxfp.core.errors import DataError
from mlxfp.text.encoding import splits
from mlxfp.text.encoding.boundary_rules import find_rule
from mlxfp.text.encoding.encoding import encode_chunk
from mlxfp.text.encoding.splits import Splits, find_splits
from mlxfp.text.tokenizers.tokenizer import Tokenizer, engine
from tests.text.configurations import HURTFUL, known, listed, plain_tokenizers, replaced, splitter, tokenizers, with_parts
from tests.text.encoding.test_beginnings import with_tokens

KNOWN = known()

_LETTERS = st.text("abcdeinotrsyzABCIZ0123579", min_size=1, max_size=9)
_WORDS = st.sampled_from(["year", "concatenate", "YEAR", "old", "in", "x", "a", "12", "1999", "7", ".", "-", "_", "'", "##", "the", "ill"])
TEXTS = st.lists(st.builds(str.__add__, st.sampled_from(["", " "]), _LETTERS | _WORDS | st.sampled_from("!#',._~")) | HURTFUL, max_size=30)


def assert_encodes_alike(tokenizer: Tokenizer, texts: list[str], *, found: Splits | None = None) -> list[str]:
    """Law: a text that is one split has the ids that the tokenizer gives it, and a cut can do it no harm. Return those texts."""
    found = found or find_splits(engine(tokenizer.json))
    rule = find_rule(tokenizer.json)
    one = [text for text in texts if found.whole.fullmatch(text)]
    for text in texts:
        ids = found.encode(text)
        assert (ids is None) == (text not in one)
        assert ids is None or array("i", ids).tolist() == tokenizer.encode(text, special=False), text
    if rule is not None and not rule.held:
        seen = [text for text in one if not (rule.hinted and re.search(rule.hinted, text))]
        assert not rule.flags(pa.array(seen, pa.string())).any()
    return one


@pytest.mark.parametrize("name", list(KNOWN))
@given(texts=TEXTS)
@example(texts=["", " ", "a", " a", "A", "a1", "1a", "aB", "Ab", "AB", "12", "1234", " 7", ".", " .", "'", "'s", " 's", "in", " year"])
def test_tokenizers_that_people_use_are_followed(name: str, texts: list[str]):
    assert_encodes_alike(KNOWN[name], texts)


@given(tokenizer=tokenizers() | plain_tokenizers(), texts=TEXTS)
def test_whatever_the_parts_of_the_tokenizer(tokenizer: Tokenizer, texts: list[str]):
    try:
        for text in texts:
            tokenizer.encode(text, special=False)
    except BaseException:  # noqa: BLE001  # the package itself panics, which is no Exception, where some added tokens overlap
        reject()
    assert_encodes_alike(tokenizer, texts)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("bert", ["word", " Word", "b2b", "1999", " ,"]),
        ("gpt2", ["word", " Word", "1999", " ,"]),
        ("llama3", ["word", " Word", " ,"]),  # at most three digits, and none behind a space
        ("listed-gpt4", ["word", " Word", " ,"]),
        ("llama2", ["word", " Word", "b2b", "1999", " ,", " fooBar"]),
    ],
)
def test_what_is_one_split(name: str, split: list[str]):
    texts = ["word", " Word", "b2b", "1999", " ,", " fooBar"]
    kept = assert_encodes_alike(KNOWN[name], texts)
    assert [text for text in kept if text != " fooBar"] == [text for text in split if text != " fooBar"]
    assert assert_encodes_alike(KNOWN[name], ["", " ", "  a", "a b", "a ", "\u00e9t\u00e9", "a\n", "don't", "\u6f22", "!!"]) == []


@pytest.mark.parametrize("content", ["cat", "CAT", "\u00e7at", " a", "7", ".", "", "\u2581", "\u2581a"])
@given(texts=st.lists(st.sampled_from(["concatenate", " a", "a", "cat", "17", ".", " .", "Cat", " abc"]), max_size=9))
def test_a_token_that_was_added_may_stand_inside_words(content: str, texts: list[str]):
    for name in ("bert", "bert-cased", "gpt2", "llama2", "t5"):
        if content:
            assert_encodes_alike(with_any(KNOWN[name], content), texts)


def with_any(tokenizer: Tokenizer, content: str) -> Tokenizer:
    """Add a token that is searched in normalized text."""
    data = jsons.loads(tokenizer.json)
    if isinstance(data["model"]["vocab"], dict):
        made = jsons.loads(with_tokens(tokenizer, content).json)
        tokens = [{**token, "normalized": True} if token["content"] == content else token for token in made["added_tokens"]]
        return with_parts(made, added_tokens=tokens)
    options = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    token = {"id": len(data["model"]["vocab"]) + 50, "content": content, "normalized": True} | options
    return with_parts(data, added_tokens=[*data["added_tokens"], token])


def _with_added(name: str, content: str) -> Tokenizer:
    return with_tokens(KNOWN[name], content)


def _replacing(text: str) -> Tokenizer:
    return with_parts(jsons.loads(KNOWN["gpt2"].json), normalizer=replaced({"String": text}, "x"))


def _marked_by(letter: str) -> Tokenizer:
    return with_parts(listed(), pre_tokenizer=splitter("Metaspace", replacement=letter, prepend_scheme="never"))


@pytest.mark.parametrize(
    ("tokenizer", "texts", "broken"),
    [
        pytest.param(_with_added("gpt2", "cat"), ["concatenate"], {"_PART": re.compile(r"(?!)")}, id="an added token inside a word"),
        pytest.param(_replacing("e"), ["red"], {"_keeps_words": lambda part: True, "_SAMPLES": ("r", "d")}, id="a letter replaced"),
        pytest.param(_replacing("ca"), ["cat"], {"_keeps_words": lambda part: True}, id="two letters replaced"),
        pytest.param(_marked_by("q"), ["aqa"], {"_SAMPLES": ("b", "B", "3")}, id="a letter that marks spaces"),
    ],
)
def test_the_law_catches_what_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer, texts: list[str], broken: dict[str, object]
):
    assert_encodes_alike(tokenizer, texts)
    for name, value in broken.items():
        monkeypatch.setattr(splits, name, value)
    with pytest.raises(AssertionError):
        assert_encodes_alike(tokenizer, texts)


@pytest.mark.parametrize(
    ("name", "text", "broken"),
    [
        pytest.param("bert", "Year", lambda found: evolve(found, lower=False), id="capitals left"),
        pytest.param("gpt2", " year", lambda found: evolve(found, spaced=""), id="a space dropped"),
        pytest.param("roberta", "year", lambda found: evolve(found, bare=""), id="no space put in front"),
        pytest.param("listed-gpt2", "year1", lambda found: evolve(found, whole=re.compile("[a-z0-9]+")), id="letters and digits as one"),
        pytest.param("bert", "it's", lambda found: evolve(found, whole=re.compile("[a-z']+")), id="an apostrophe inside a word"),
    ],
)
def test_the_law_catches_splits_that_are_written_wrongly(name: str, text: str, broken: Callable[[Splits], Splits]):
    found = find_splits(engine(KNOWN[name].json))
    assert_encodes_alike(KNOWN[name], [text])
    with pytest.raises(AssertionError):
        assert_encodes_alike(KNOWN[name], [text], found=broken(found))


@given(tokenizer=tokenizers(), before=st.integers(33, 255))
def test_every_rule_cuts_in_front_of_a_space_behind_what_is_not_white(tokenizer: Tokenizer, before: int):
    for some in (tokenizer, *KNOWN.values()):
        rule = find_rule(some.json)
        assert rule is None or rule.split(bytes([before]) + b" x") == [bytes([before]), b" x"]


def test_a_word_that_the_model_cannot_encode_is_left_to_the_tokenizer_which_says_so():
    model = {"type": "WordLevel", "vocab": {"cat": 0}, "unk_token": "[UNK]"}
    tokenizer = Tokenizer(jsons.dumps({"model": model, "pre_tokenizer": splitter("WhitespaceSplit")}))
    found = find_splits(engine(tokenizer.json))
    assert (found.encode(" cat"), found.encode(" dog")) == (bytes(4), None)
    with pytest.raises(DataError, match="UNK"):
        encode_chunk(tokenizer, pa.array(["cat dog"]))
