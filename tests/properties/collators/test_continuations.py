"""Which tokens continue a word, in every kind of vocabulary."""

import json as jsons

import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError

TEXT = "the cat sat on the mat. The rat, that fat cat, sat too!\nunhappiness happens; cats catch rats"


def words(tokenizer: fp.Tokenizer, text: str) -> list[str]:
    """Join tokens to words by what `continuations` says."""
    ids = tokenizer.encode(text, special=False)
    continuing = fp.collators.continuations(tokenizer)
    found: list[str] = []
    for number, token in zip(ids, tokenizer.tokens(ids), strict=True):
        if number in continuing and found:
            found[-1] += token.removeprefix("##")
        else:
            found.append(token)
    return found


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> fp.Tokenizer:
    return fp.train_tokenizer(fp.from_examples([{"text": TEXT}] * 3), kind=request.param, vocab_size=300 if request.param == "bpe" else 60)


def test_tokens_join_to_the_words_of_the_text(tokenizer: fp.Tokenizer):
    found = [word.strip("Ġ▁") for word in words(tokenizer, "the happiness catches that sat")]
    assert found == ["the", "happiness", "catches", "that", "sat"]


def test_special_tokens_continue_nothing(tokenizer: fp.Tokenizer):
    assert not tokenizer.special_ids & fp.collators.continuations(tokenizer)


def test_punctuation_belongs_to_the_word_it_touches_where_only_spaces_begin_words():
    rows = fp.from_examples([{"text": TEXT}])
    assert words(fp.train_tokenizer(rows, kind="wordpiece", vocab_size=60), "the cat.") == ["the", "cat", "."]
    assert words(fp.train_tokenizer(rows, kind="bpe", vocab_size=300), " the cat.") == ["Ġthe", "Ġcat."]


def plain(model: dict[str, object], pre_tokenizer: dict[str, str] | None = None) -> fp.Tokenizer:
    return fp.Tokenizer(jsons.dumps({"version": "1.0", "added_tokens": [], "model": model, "pre_tokenizer": pre_tokenizer}))


def test_a_vocabulary_of_words_has_no_continuations():
    assert fp.collators.continuations(plain({"type": "WordLevel", "vocab": {"a": 0, "##b": 1}, "unk_token": "a"})) == frozenset()


def test_a_vocabulary_that_does_not_say_where_words_begin_is_refused():
    bpe = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    with pytest.raises(ArgumentError) as error:
        fp.collators.continuations(plain(bpe, {"type": "Whitespace"}))
    assert str(error.value) == (
        "The vocabulary of the tokenizer does not mark the tokens that start a word. Got the model BPE with the components ['Whitespace']. "
        "Pass masked(continuations=ids) with the ids of all tokens that continue a word, or omit continuations to mask single tokens."
    )
    with pytest.raises(ArgumentError, match="with the components none"):
        fp.collators.continuations(plain(bpe))
    with pytest.raises(ArgumentTypeError, match="tokenizer must be Tokenizer, got str"):
        fp.collators.continuations("bert")


def test_a_continuing_prefix_of_bpe_is_used():
    tokenizer = plain({"type": "BPE", "vocab": {"a": 0, "@@a": 1}, "merges": [], "continuing_subword_prefix": "@@"})
    assert fp.collators.continuations(tokenizer) == {1}
