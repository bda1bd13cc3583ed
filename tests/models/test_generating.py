"""Generating: with the cache it is what it is without, and prompts do not know of each other."""

from collections import Counter

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfp.models import CausalLM, Classifier, generate
from mlxfp.models.generating import likeliest
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.testing.laws import assert_generates_the_likeliest
from tests.models.samples import VOCABULARY, body, gap, rows

MODEL = CausalLM(body("decoder")).eval()
UNTIED = CausalLM(body("decoder"), tie_word_embeddings=False).eval()
PROMPTS = st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=8), min_size=1, max_size=3)


@settings(max_examples=25)
@given(st.sampled_from([MODEL, UNTIED]), PROMPTS, st.integers(1, 8))
def test_generation_with_the_cache_equals_generation_without(model, prompts, count):
    assert_generates_the_likeliest(model, prompts, generate(model, prompts, max_tokens=count))


@settings(max_examples=25)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.data())
def test_extending_piece_by_piece_equals_encoding_at_once(lengths, data):
    ids, mask = rows(lengths)
    decoder, cuts = MODEL.body, data.draw(st.lists(st.integers(0, max(lengths)), max_size=3).map(sorted))
    cache, pieces = decoder.cache(len(lengths), 24), []
    for start, end in zip([0, *cuts], [*cuts, max(lengths)], strict=True):
        if start < end:
            hidden, cache = decoder.extend(ids[:, start:end], cache, mask[:, start:end])
            pieces.append(hidden)
    real = np.array(mask) != 0
    assert gap(np.array(mx.concatenate(pieces, axis=1))[real], np.array(decoder(ids, mask))[real]) < 1e-4


def test_rows_may_be_padded_between_one_extension_and_the_next():
    decoder = MODEL.body
    ids, mask = rows([2, 5])
    more, _ = rows([3, 3], seed=1)
    _, cache = decoder.extend(ids, decoder.cache(2, 10), mask)
    hidden, _ = decoder.extend(more, cache)
    for row, length in enumerate([2, 5]):
        whole = decoder(mx.concatenate([ids[row : row + 1, :length], more[row : row + 1]], axis=1))
        assert gap(hidden[row], whole[0, length:]) < 1e-4


def test_a_cache_is_a_value():
    decoder = MODEL.body
    _, cache = decoder.extend(mx.array([[1, 2, 3]]), decoder.cache(1, 8))
    first, _ = decoder.extend(mx.array([[4, 5]]), cache)
    decoder.extend(mx.array([[6, 7]]), cache)
    again, _ = decoder.extend(mx.array([[4, 5]]), cache)
    assert mx.array_equal(first, again).item()
    assert repr(cache) == "Cache(length=3, capacity=8)"


def test_a_full_cache_is_an_error_that_says_so():
    decoder = MODEL.body
    _, cache = decoder.extend(mx.array([[1]]), decoder.cache(1, 2))
    with pytest.raises(ArgumentError, match=r"The cache has room for 2 tokens, got 2 after 1\. Increase capacity"):
        decoder.extend(mx.array([[1, 2]]), cache)
    with pytest.raises(
        ArgumentError,
        match="has 24 positions, got rows of 25 tokens",
    ):
        decoder.cache(1, 25)


@settings(max_examples=20)
@given(PROMPTS, st.integers(0, 3), st.sampled_from([None, 1, 3]), st.sampled_from([None, 0.5, 1.0]))
def test_a_prompt_continues_alone_as_it_does_among_others(prompts, seed, top_k, top_p):
    drawn = {"max_tokens": 4, "temperature": 1.0, "seed": seed, "top_k": top_k, "top_p": top_p}
    assert generate(MODEL, prompts[:1], **drawn)[0] == generate(MODEL, prompts, **drawn)[0]


def test_draws_follow_the_probabilities_and_the_seed():
    chances = mx.softmax(MODEL(mx.array([[3, 4]]))[0, -1]).tolist()
    drawn = Counter(token for (token,) in generate(MODEL, [[3, 4]] * 2000, max_tokens=1, temperature=1.0, seed=5))
    assert max(abs(drawn[token] / 2000 - chance) for token, chance in enumerate(chances)) < 0.04
    assert generate(MODEL, [[3, 4]], temperature=1.0, seed=1, max_tokens=9) != generate(
        MODEL, [[3, 4]], temperature=1.0, seed=2, max_tokens=9
    )


def test_the_likeliest_are_those_that_were_asked_for():
    logits = mx.log(mx.array([[0.1, 0.4, 0.3, 0.2]]))
    kept = {
        (2, None): [1, 2],
        (9, None): [0, 1, 2, 3],
        (None, 0.4): [1],
        (None, 0.41): [1, 2],
        (None, 1.0): [0, 1, 2, 3],
        (3, 0.5): [1, 2],
    }
    for (top_k, top_p), tokens in kept.items():
        found = np.array(likeliest(logits, top_k=top_k, top_p=top_p))[0]
        assert np.flatnonzero(np.isfinite(found)).tolist() == tokens, (top_k, top_p)


def test_one_of_one_likeliest_is_the_likeliest():
    assert generate(MODEL, [[5, 6]], max_tokens=6, temperature=3.0, top_k=1) == generate(MODEL, [[5, 6]], max_tokens=6)


def test_a_continuation_ends_with_what_stops_it():
    whole = generate(MODEL, [[3, 4], [7]], max_tokens=8)
    stop = whole[0][2]
    stopped = generate(MODEL, [[3, 4], [7]], max_tokens=8, stop_ids={stop})
    for all_of_it, part in zip(whole, stopped, strict=True):
        assert part == all_of_it[: all_of_it.index(stop) + 1] if stop in all_of_it else part == all_of_it
    assert generate(MODEL, [], max_tokens=3) == []


def test_impossible_arguments_are_refused():
    cases = {
        r"max_tokens must be at least 1": {"max_tokens": 0},
        r"temperature must be at least 0, got temperature=-1": {"temperature": -1},
        r"top_p must be above 0 and at most 1, got top_p=0": {"top_p": 0, "temperature": 1.0},
        r"top_k must be at least 1": {"top_k": 0, "temperature": 1.0},
        r"temperature=0 does not sample, got top_k=3 and top_p=None\. Set a temperature": {"top_k": 3},
        r"has 24 positions, and a prompt of 2 tokens with max_tokens=100 needs 101 positions\.": {"max_tokens": 100},
    }
    for message, arguments in cases.items():
        with pytest.raises(ArgumentError, match=message):
            generate(MODEL, [[1, 2]], **arguments)
    with pytest.raises(ArgumentError, match=r"Prompt 1 is empty\. Start the prompt with a token"):
        generate(MODEL, [[1], []])
    with pytest.raises(
        ArgumentError, match=r"Prompt 0 has the id 20, but the model's vocabulary has 20 tokens\. Use the tokenizer of the model"
    ):
        generate(MODEL, [[20]])
    with pytest.raises(ArgumentTypeError, match="model must be CausalLM, got Classifier"):
        generate(Classifier(body("decoder"), 2), [[1]])
    with pytest.raises(ArgumentTypeError, match="the body of the model must be Decoder, got Bert"):
        generate(CausalLM(body("bert")), [[1]])


def test_prompts_may_be_arrays():
    whole = generate(MODEL, [[5, 6], [7, 8]], max_tokens=2)
    assert generate(MODEL, np.array([[5, 6], [7, 8]]), max_tokens=2) == whole
    assert generate(MODEL, mx.array([[5, 6], [7, 8]]), max_tokens=2) == whole
    assert generate(MODEL, [np.array([5, 6]), (7, 8)], max_tokens=2) == whole
    assert generate(MODEL, np.zeros((0, 2), int), max_tokens=2) == []


@pytest.mark.parametrize("prompts", [["hello"], "hello", [5, 6], [[5.5, 6]], [["a"]], [[[5]]], [None]])
def test_what_is_no_prompt_is_named(prompts):
    with pytest.raises(ArgumentTypeError, match=r"Prompt 0 must be a list of token ids, got .*pass a list of prompts"):
        generate(MODEL, prompts)


@pytest.mark.parametrize(
    ("stop_ids", "said"),
    [(2, "stop_ids must be Collection, got int"), ([3, None], "stop_ids must be token ids, got None. Pass integers")],
)
def test_what_is_no_stop_is_named(stop_ids, said):
    with pytest.raises(ArgumentTypeError, match=said):
        generate(MODEL, [[5]], stop_ids=stop_ids)
