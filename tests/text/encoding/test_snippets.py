"""The law of a few short texts: by words in plain Python, by words in arrays, and by the tokenizer itself they have the same ids."""

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from typing import Any

import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st

from mlxfp.text import tokenizing
from mlxfp.text.encoding import credit, encoding, snippets
from mlxfp.text.encoding.batch_calls import find_caller
from mlxfp.text.encoding.boundary_rules import Rule, find_rule
from mlxfp.text.encoding.credit import Credit
from mlxfp.text.encoding.encoding import encode_chunk
from mlxfp.text.encoding.framing import put_around_few
from mlxfp.text.encoding.snippets import Lexicon
from mlxfp.text.tokenizers.tokenizer import Tokenizer, engine
from mlxfp.text.tokenizing import Truncation, tokenize
from tests.text.configurations import HURTFUL, known, tokenizers
from tests.text.corpora import SENTENCES, TEXTS, framings, trained
from tests.text.test_tokenizing import assert_tokenizes_alike, reference, stage_of

KNOWN = known()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Let no lexicon of one test reach another."""
    encoding._encoder.cache_clear()
    yield
    encoding._encoder.cache_clear()


def lexicon_of(tokenizer: Tokenizer, *, rule: Rule | None = None, limit: int = 1 << 20) -> Lexicon:
    rule = rule or find_rule(tokenizer.json)
    assert rule is not None
    return Lexicon(find_caller(engine(tokenizer.json)), rule, limit)


def ids_of(lexicon: Lexicon, texts: Sequence[str]) -> list[list[int] | None]:
    """Encode by words, whether it pays or not; None where a cut may have done harm."""
    return [None if row is None else array("i", row).tolist() for row in lexicon.find(texts, math.inf)]


def assert_encodes_alike(lexicon: Lexicon, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Law: what is encoded by words met before is encoded as by the tokenizer, the first time and later."""
    expected = [tokenizer.encode(text, special=False) for text in texts]
    for order in (1, -1, 1):  # all words known in the end
        for found, ids in zip(ids_of(lexicon, texts[::order]), expected[::order], strict=True):
            assert found in (None, ids)


@pytest.mark.parametrize("name", list(KNOWN))
@given(texts=st.lists(HURTFUL, max_size=8), limit=st.sampled_from([0, 2000, 1 << 20]))
@example(texts=["", " ", "a", " a", "a ", "  a  b  ", "a\n\nb", "a\tb", "don't'll", "a,b.c (d) [MASK]x", "[CLS][SEP] [SEP]"], limit=0)
@example(texts=["", *SENTENCES, "", ""], limit=1 << 20)
def test_tokenizers_that_people_use_are_followed(name: str, texts: list[str], limit: int):
    assert_encodes_alike(lexicon_of(KNOWN[name], limit=limit), KNOWN[name], texts)


@given(tokenizer=tokenizers(), texts=st.lists(HURTFUL, max_size=12))
def test_no_tokenizer_however_it_is_put_together_is_followed_wrongly(tokenizer: Tokenizer, texts: list[str]):
    try:
        expected = [tokenizer.encode(text, special=False) for text in texts]
    except BaseException:  # noqa: BLE001  # the package itself panics, which is no Exception, where some added tokens overlap
        reject()
    assert encode_chunk(tokenizer, pa.array(texts, pa.string())).to_pylist() == expected
    if find_rule(tokenizer.json) is not None:
        assert_encodes_alike(lexicon_of(tokenizer), tokenizer, texts)


@pytest.mark.parametrize("name", list(KNOWN))
def test_sentences_are_encoded_by_words_and_not_given_up(name: str):
    texts = SENTENCES[:3]
    assert ids_of(lexicon_of(KNOWN[name]), texts) == [KNOWN[name].encode(text, special=False) for text in texts]


@given(
    st.sampled_from([*KNOWN.values()]) | tokenizers(),
    st.lists(st.text(st.characters(max_codepoint=127), min_size=1, max_size=6) | st.sampled_from(["CLS", "end", "a", " b", "\u3000"])),
)
def test_words_that_are_plain_have_no_flags(tokenizer: Tokenizer, words: list[str]):
    rule = find_rule(tokenizer.json)
    for word in words if rule is not None else []:
        assert rule is not None
        pieces = [piece.decode() for piece in _cut(rule, word.encode())]
        assert not (rule.plain(pieces) and rule.flags(pa.array(pieces, pa.string())).any())


def _cut(rule: Rule, text: bytes) -> list[bytes]:
    places = [0, *[place for place, cut in enumerate(rule.find(text).tolist()) if cut and place], len(text)]
    return [text[first:end] for first, end in pairwise(places)]


@given(st.sampled_from([*KNOWN.values()]) | tokenizers(), HURTFUL)
def test_one_text_is_cut_as_many_are(tokenizer: Tokenizer, text: str):
    rule = find_rule(tokenizer.json)
    if rule is not None:
        assert rule.split(text.encode()) == (_cut(rule, text.encode()) if text else [])


def test_most_words_are_plain_and_those_with_a_flag_are_not():
    for name, flagged in (("gpt2", "a\u3000"), ("bert", "CLS"), ("llama2", "a▁")):
        rule = find_rule(KNOWN[name].json)
        assert rule is not None
        assert rule.plain(["The", " cat", ","])
        assert not rule.plain(["The", flagged])
        assert rule.flags(pa.array([flagged])).tolist() != [0]


@pytest.mark.parametrize(
    ("name", "texts", "broken"),
    [
        pytest.param("bert", ["a[CLS]"], lambda rule: evolve(rule, hinted=""), id="an added token cut in two"),
        pytest.param("llama2", ["a b", " a b"], lambda rule: evolve(rule, cuts=evolve(rule.cuts, lead=False)), id="a space put in twice"),
        pytest.param(
            "listed-gpt2", ["a\u3000  b"], lambda rule: evolve(rule, cuts=evolve(rule.cuts, strict=False)), id="white space at an end"
        ),
    ],
)
def test_the_law_catches_cuts_that_do_harm(name: str, texts: list[str], broken: Callable[[Rule], Rule]):
    rule = find_rule(KNOWN[name].json)
    assert rule is not None
    assert_encodes_alike(lexicon_of(KNOWN[name]), KNOWN[name], texts)
    with pytest.raises(AssertionError):
        assert_encodes_alike(lexicon_of(KNOWN[name], rule=broken(rule)), KNOWN[name], texts)


@example(place=0, rows=[(" ".join(SENTENCES), "")], max_length=8, side="left", special=True)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # what it patches is the same each time
@given(
    place=st.integers(0, 8),
    rows=st.lists(st.tuples(TEXTS, TEXTS), max_size=16),
    max_length=st.none() | st.integers(5, 24),
    side=st.sampled_from(["right", "left"]),
    special=st.booleans(),
)
def test_small_chunks_are_tokenized_alike_on_every_way(
    monkeypatch: pytest.MonkeyPatch, place: int, rows: list[tuple[str, str]], *, max_length: int | None, side: Truncation, special: bool
):
    tokenizer = framings()[place]
    for pair in (False, True):
        expected = reference(tokenizer, rows, pair=pair, max_length=max_length, side=side, special=special)
        truncation: Truncation = side if max_length is not None else "right"
        stage = stage_of(tokenize(tokenizer, pair="other" if pair else None, max_length=max_length, truncation=truncation, special=special))
        assert_tokenizes_alike(stage.apply, rows, expected)  # as it comes
        with monkeypatch.context() as patch:
            patch.setattr(credit, "_MOST", math.inf)
            lexicon = encoding._encoder(stage.tokenizer.json).lexicon
            for left in (0.0, math.inf):  # by the tokenizer, as nothing may be lost, and by words in plain Python
                lexicon.credit = Credit(left, since=-math.inf)
                assert_tokenizes_alike(stage.apply, rows, expected)
                assert_tokenizes_alike(stage.apply, rows, expected)
        with monkeypatch.context() as patch:
            patch.setattr(tokenizing, "encode_few", lambda *_: None)
            assert_tokenizes_alike(stage.apply, rows, expected)  # framed as arrays
            patch.setattr(encoding, "_FEW", -1)
            patch.setattr(encoding, "_pays", lambda size: True)
            assert_tokenizes_alike(stage.apply, rows, expected)  # by words in arrays


@given(
    st.sampled_from([*KNOWN.values()]),
    st.lists(st.sampled_from([" ", " ", "  ", "\n", "\t", "\u3000", "in", "the", "The", "cat,", "(a)", "7", "don't", "\x1c"]), max_size=12),
)
def test_white_space_may_stand_anywhere(tokenizer: Tokenizer, parts: list[str]):
    lexicon, text = lexicon_of(tokenizer), "".join(parts)
    ids_of(lexicon, [" in the cat", "\n", " \n", "in\n", " ", "a  b", "a \n b"])  # so that parts are known which must not be looked up
    assert_encodes_alike(lexicon, tokenizer, [text, f"in {text}", f"{text} in"])


@pytest.mark.parametrize(
    ("name", "texts", "broken"),
    [
        pytest.param(
            "unigram", ["in ", "in  the"], lambda word: word[1:] if word[:1] == b" " else b"\xff" + word, id="a cut behind a space"
        ),
        pytest.param("t5", [" \n", " \n in"], lambda word: word[1:] if word[:1] == b" " else b"\xff" + word, id="a cut behind a line end"),
        pytest.param("gpt2", [" in", "in"], lambda word: word.lstrip(b" "), id="a word kept without its space"),
    ],
)
def test_the_law_catches_words_that_are_kept_wrongly(
    monkeypatch: pytest.MonkeyPatch, name: str, texts: list[str], broken: Callable[[bytes], bytes]
):
    assert_encodes_alike(lexicon_of(KNOWN[name]), KNOWN[name], texts)
    monkeypatch.setattr(snippets, "_key", broken)
    monkeypatch.setattr(snippets, "_BEGINS", b"" if name == "gpt2" else b"\xff")
    with pytest.raises(AssertionError):
        assert_encodes_alike(lexicon_of(KNOWN[name]), KNOWN[name], texts)


def _forget_cutting(right: Any, around: Any, rows: Any, room: int | None, side: Any) -> Any:
    return right(around, rows, None, side)


def _cut_right(right: Any, around: Any, rows: Any, room: int | None, side: Any) -> Any:
    return right(around, rows, room, "right")


def _swap_ends(right: Any, around: Any, rows: Any, room: int | None, side: Any) -> Any:
    return right(around[::-1], rows, room, side)


@pytest.mark.parametrize("broken", [_forget_cutting, _cut_right, _swap_ends])
def test_the_law_catches_rows_that_are_framed_wrongly(monkeypatch: pytest.MonkeyPatch, broken: Callable[..., Any]):
    rows = [("year old male in class", ""), ("in", "")]
    tokenizer = trained("wordpiece")
    expected = reference(tokenizer, rows, pair=False, max_length=5, side="left", special=True)
    stage = stage_of(tokenize(tokenizer, max_length=5, truncation="left"))
    assert_tokenizes_alike(stage.apply, rows, expected)
    monkeypatch.setattr(tokenizing, "put_around_few", lambda *arguments: broken(put_around_few, *arguments))
    with pytest.raises(AssertionError):
        assert_tokenizes_alike(stage.apply, rows, expected)


def test_words_that_repeat_are_kept_though_texts_come_one_at_a_time(monkeypatch: pytest.MonkeyPatch):
    tokenizer = trained("bpe")
    monkeypatch.setattr(snippets, "perf_counter", lambda: 0.0)  # however long it takes here
    for _ in range(3):
        for text in SENTENCES:
            encode_chunk(tokenizer, pa.array([text * 3]))
    lexicon = encoding._encoder(tokenizer.json).lexicon
    assert lexicon is not None
    assert len(lexicon) > 20


def test_new_words_are_learned_where_they_cost_no_more_than_the_credit():
    tokenizer = trained("bpe")
    lexicon = lexicon_of(tokenizer)
    for text in (" ".join(map("".join, product("xyz", repeat=5))), " ".join(f"w{number}" for number in range(200))):
        assert (lexicon.find([text], 200.0), len(lexicon)) == ([None], 0)
    assert lexicon.find([text], math.inf) != [None]
    assert lexicon.find([text], 0.0) != [None]  # all met before


def test_a_lexicon_holds_no_more_than_its_limit():
    lexicon = lexicon_of(trained("wordpiece"), limit=20_000)
    most = 0
    for start in range(0, 2000, 20):
        ids_of(lexicon, [" ".join(f"word{number}" for number in range(start, start + 20))])
        most = max(most, lexicon._size)
        assert sum(map(len, (*lexicon._ids, *lexicon._ids.values()))) <= lexicon._size + 1
    assert 10_000 < most <= 20_000


def test_threads_share_a_lexicon():
    tokenizer = trained("bpe")
    lexicon = lexicon_of(tokenizer, limit=10_000)

    def encode(seed: int) -> bool:
        texts = [f"w{seed * number % 97} in class {number}" for number in range(200)]
        return all(ids_of(lexicon, [text]) == [tokenizer.encode(text, special=False)] for text in texts)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(encode, range(4)))


def test_long_texts_and_many_empty_ones_are_no_snippets():
    tokenizer = trained("bpe")
    long = " ".join(SENTENCES[:2]) * 200
    for texts in ([long, "", long], [""] * 200, ["in"] * 200):
        assert encode_chunk(tokenizer, pa.array(texts)).to_pylist() == [tokenizer.encode(text, special=False) for text in texts]
    lexicon = encoding._encoder(tokenizer.json).lexicon
    assert lexicon is not None
    assert len(lexicon) == 0


def test_a_text_longer_than_a_block_goes_by_words_where_there_is_credit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(encoding, "_BLOCK", 10_000)
    tokenizer = trained("bpe")
    long = " ".join(SENTENCES[:2]) * 200
    expected = [tokenizer.encode(text, special=False) for text in (long, "in")]
    encoder = encoding._encoder(tokenizer.json)
    encoder.credit = Credit(1.0, since=0.0)
    assert encode_chunk(tokenizer, pa.array([long, "in"])).to_pylist() == expected
    assert encoder.memo  # has words
