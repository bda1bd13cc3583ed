"""Lists of texts are encoded as the texts are."""

import json as jsons

import tokenizers as hf
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.text.encoding.batch_calls import find_caller
from mlxfp.text.tokenizers.tokenizer import engine
from tests.text.configurations import HURTFUL, known, listed

KNOWN = known()


@given(st.sampled_from(list(KNOWN)), st.lists(HURTFUL | st.sampled_from(["[PAD]", "x [PAD]y", "\uff3bPAD\uff3d", "<unk>"]), max_size=10))
def test_a_call_gives_each_text_its_ids(name: str, texts: list[str]):
    tokenizer, texts = KNOWN[name], texts * 3
    ids, lengths = find_caller(engine(tokenizer.json)).encode(texts)
    expected = [tokenizer.encode(text, special=False) for text in texts]
    assert lengths.tolist() == [len(row) for row in expected]
    assert ids.tolist() == [number for row in expected for number in row]
    assert ids.dtype == "int32"


def test_a_separator_is_a_token_that_is_encoded_alone():
    assert find_caller(engine(KNOWN["bert"].json)).separator == "[PAD]"
    assert find_caller(engine(KNOWN["llama2"].json)).separator == "<unk>"


def test_without_such_a_token_texts_are_encoded_one_by_one():
    own = hf.Tokenizer.from_str(jsons.dumps(listed()))
    assert find_caller(own).separator is None
    assert find_caller(own).encode(["in", "", "nowhere"])[1].tolist() == [1, 0, 1]


def test_long_lists_are_divided():
    caller = find_caller(engine(KNOWN["gpt2"].json))
    texts = ["a b " * length for length in range(700)]
    ids, lengths = caller.encode(texts)
    assert lengths.tolist() == [len(caller.tokenizer.encode(text, add_special_tokens=False).ids) for text in texts]
    assert lengths.sum() == len(ids)
