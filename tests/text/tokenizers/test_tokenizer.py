"""Tokenizers are values, and follow the tokenizer that their JSON describes."""

import json as jsons
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import mlx.core as mx
import numpy as np
import pytest
import tokenizers as hf
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from tests.text.corpora import TEXTS, framings, trained


@given(TEXTS)
def test_byte_level_tokenizers_read_back_any_text(text: str):
    tokenizer = trained("bpe")
    assert tokenizer.decode(tokenizer.encode(text, special=False), special=True) == text


def test_that_law_is_one_other_tokenizers_break():
    for kind, text in (("wordpiece", "isn't"), ("unigram", "two  spaces")):
        tokenizer = trained(kind)
        assert tokenizer.decode(tokenizer.encode(text, special=False), special=True) != text


@given(st.integers(0, 8), TEXTS, TEXTS, st.booleans())
def test_encoding_is_the_packages_own(place: int, first: str, second: str, special: bool):
    tokenizer = framings()[place]
    own = hf.Tokenizer.from_str(tokenizer.json)
    pair = own.encode(first, second, add_special_tokens=special)
    assert tokenizer.encode(first, special=special) == own.encode(first, add_special_tokens=special).ids
    assert tokenizer.encode_pair(first, second, special=special) == (pair.ids, pair.type_ids)
    assert tokenizer.tokens(pair.ids) == [own.id_to_token(number) for number in pair.ids]
    assert tokenizer.decode(pair.ids) == own.decode(pair.ids)


def test_equality_hash_and_pickling_are_by_content():
    tokenizer = trained("bpe")
    spread = attrs.evolve(tokenizer, json=jsons.dumps(jsons.loads(tokenizer.json), indent=2))
    assert spread == tokenizer
    assert hash(spread) == hash(tokenizer)
    assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer
    assert pickle.loads(pickle.dumps(tokenizer)).encode("a class") == tokenizer.encode("a class")
    assert tokenizer != trained("unigram")
    assert tokenizer != attrs.evolve(tokenizer, eos_token="[SEP]")


def test_padding_truncation_and_dropout_of_the_file_are_left_out():
    tokenizer = trained("bpe")
    own = hf.Tokenizer.from_str(tokenizer.json)
    own.enable_padding(length=50)
    own.enable_truncation(3)
    own.model.dropout = 0.9
    read = attrs.evolve(tokenizer, json=own.to_str())
    assert (read, fp.inspect.fingerprint(read)) == (tokenizer, fp.inspect.fingerprint(tokenizer))
    text = "a 22 year old male travelling"
    assert read.encode(text) == tokenizer.encode(text) != own.encode(text).ids


def test_special_tokens_have_ids_by_role():
    tokenizer = trained("wordpiece")
    assert [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id] == [0, 1, 2, 3, 4]
    assert tokenizer.special_ids == {0, 1, 2, 3, 4}
    assert tokenizer.tokens([0, 4]) == ["[PAD]", "[MASK]"]


def test_a_role_that_no_token_has_is_an_error_that_says_what_to_do():
    tokenizer = trained("bpe")
    assert tokenizer.eos_token is None
    with pytest.raises(ArgumentError, match=r"vocabulary has no eos token: Tokenizer\(BPE, vocab_size=300\)\. Set a token with attrs"):
        _ = tokenizer.eos_id
    with pytest.raises(ArgumentError, match="vocabulary lacks the configured bos token '<nope>'"):
        _ = attrs.evolve(tokenizer, bos_token="<nope>").bos_id
    assert attrs.evolve(tokenizer, eos_token="[SEP]").eos_id == 3


def test_hasattr_is_false_for_a_role_without_a_token():
    """`hasattr` and `getattr` with a default treat a missing token like a missing attribute."""
    tokenizer = trained("bpe")
    assert not hasattr(tokenizer, "eos_id")
    assert getattr(tokenizer, "eos_id", None) is None
    assert hasattr(attrs.evolve(tokenizer, eos_token="[SEP]"), "eos_id")


def test_the_size_of_the_vocabulary_covers_every_id():
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 7}, "unk_token": "a"}
    assert fp.Tokenizer(jsons.dumps({"version": "1.0", "added_tokens": [], "model": model})).vocab_size == 8


def test_ids_that_are_no_tokens_are_refused():
    tokenizer = trained("bpe")
    for wrong in (-100, 300, 2**40):
        with pytest.raises(ArgumentError, match=rf"The id {wrong} is not in the vocabulary of .* Remove padding and ignored labels first"):
            tokenizer.decode([5, wrong])
        with pytest.raises(ArgumentError, match=f"The id {wrong}"):
            tokenizer.tokens([wrong])


@pytest.mark.parametrize("wrong", [5, None, "ab", [1.5], [5, "a"], [[5, 6], [7]], np.array([5.0]), mx.array([[5, 6]]), np.array(5)])
@pytest.mark.parametrize("method", ["decode", "tokens"])
def test_only_integers_are_ids(method: str, wrong: Any):
    """A fraction is a mistake, such as the probability of a token."""
    with pytest.raises(ArgumentTypeError) as error:
        getattr(trained("bpe"), method)(wrong)
    assert str(error.value) == f"ids must be integers such as [5, 7], got {wrong!r:.60}. Pass the ids of a single row."


def test_integers_of_all_libraries_are_ids():
    tokenizer = trained("bpe")
    for ids in ((5, 6), iter([5, 6]), np.array([5, 6], np.int32), mx.array([5, 6]), [np.uint8(5), mx.array(6)]):
        assert tokenizer.tokens(ids) == tokenizer.tokens([5, 6])


@pytest.mark.parametrize("json", ["", "nope", "[]", "{}", '{"model": 3}', '{"model": {"type": "BPE"}}', '{"model": {}, "added_tokens": 5}'])
def test_malformed_json_is_refused(json: str):
    with pytest.raises(DataError, match=r"The JSON of a tokenizer is malformed: .* Pass the text of a tokenizer\.json file"):
        fp.Tokenizer(json)


def test_arguments_of_the_wrong_type_are_refused():
    tokenizer = trained("bpe")
    with pytest.raises(ArgumentTypeError, match="json must be a string"):
        fp.Tokenizer(5)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ArgumentTypeError, match="pad_token must be str or NoneType, got int"):
        attrs.evolve(tokenizer, pad_token=5)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ArgumentTypeError, match="text must be a string"):
        tokenizer.encode(None)  # type: ignore[arg-type]  # the mistake under test


def test_threads_share_a_tokenizer():
    tokenizer = trained("unigram")
    texts = [f"a {number} year old male travelling in class {number % 3}" for number in range(300)]
    expected = [tokenizer.encode(text) for text in texts]
    copies: list[Any] = [pickle.loads(pickle.dumps(tokenizer)) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        for copy in copies:
            assert list(pool.map(copy.encode, texts)) == expected


def test_text_that_cannot_be_encoded_says_what_is_missing():
    data = jsons.loads(trained("wordpiece").json)
    tokenizer = fp.Tokenizer(jsons.dumps({**data, "model": {**data["model"], "unk_token": "<nope>"}}))
    rows = fp.from_table({"text": ["A \u1234 cat"] * 40})
    for call in (
        lambda: tokenizer.encode("\u1234"),
        lambda: tokenizer.encode_pair("A", "\u1234"),
        lambda: list(fp.pipe(rows, fp.tokenize(tokenizer))),
        lambda: fp.pipe(rows, fp.tokenize(tokenizer))[3],
    ):
        with pytest.raises(DataError, match=r"cannot encode a text: .*Missing .* for unknown text \(unk_token"):
            call()
    with pytest.raises(DataError, match="Check that the text is valid Unicode"):
        tokenizer.encode("\ud800")
