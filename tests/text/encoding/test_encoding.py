"""The law of encoding by words: whatever the tokenizer and the text, the ids are the tokenizer's own."""

import json as jsons
import math
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
import tokenizers as hf
from attrs import evolve
from hypothesis import example, given, reject
from hypothesis import strategies as st

from mlxfp.core.arrow.ragged import ends_of, to_lists
from mlxfp.text.encoding import encoding
from mlxfp.text.encoding.batch_calls import find_caller
from mlxfp.text.encoding.boundaries import PATTERNS
from mlxfp.text.encoding.boundary_rules import Rule, find_rule
from mlxfp.text.encoding.encoding import encode_by_words, encode_chunk, encode_few, forget_words
from mlxfp.text.encoding.memo import Memo
from mlxfp.text.tokenizers.files import load_tokenizer
from mlxfp.text.tokenizers.tokenizer import Tokenizer, engine
from tests.text.configurations import HURTFUL, known, listed, splitter, tokenizers, with_parts
from tests.text.corpora import SENTENCES, trained
from tests.text.memos import find_memo

KNOWN = known()


pytestmark = pytest.mark.usefixtures("nothing_remembered")


def by_words(tokenizer: Tokenizer, texts: Sequence[str], *, rule: Rule | None = None, limit: int = 1 << 20) -> list[list[int]]:
    """Encode by words, whether it pays or not."""
    rule = rule or find_rule(tokenizer.json)
    assert rule is not None
    column = pa.array(["left out", *texts, "a"], pa.string())[1:]
    encoded = encode_by_words(Memo(find_caller(engine(tokenizer.json)), rule, limit), column, most_new=math.inf)
    assert encoded is not None
    ids, lengths = encoded
    return to_lists(ids, ends_of(lengths)).to_pylist()[:-1]


def assert_encodes_alike(tokenizer: Tokenizer, texts: Sequence[str], *, rule: Rule | None = None, limit: int = 1 << 20) -> None:
    """Law: encoding by words is encoding."""
    assert by_words(tokenizer, texts, rule=rule, limit=limit) == [tokenizer.encode(text, special=False) for text in texts]


@pytest.mark.parametrize("name", list(KNOWN))
@given(texts=st.lists(HURTFUL, max_size=8))
@example(texts=["", " ", "a", " a", "a ", "  a  b  ", "a\n\nb", "a\tb", "don't'll", "a,b.c (d) [MASK]x", "[CLS][SEP] [SEP]"])
def test_tokenizers_that_people_use_are_followed_by_words(name: str, texts: list[str]):
    assert_encodes_alike(KNOWN[name], texts)


@given(tokenizer=tokenizers(), texts=st.lists(HURTFUL, max_size=12))
def test_no_tokenizer_however_it_is_put_together_is_cut_where_it_shows(tokenizer: Tokenizer, texts: list[str]):
    try:
        expected = [tokenizer.encode(text, special=False) for text in texts]
    except BaseException:  # noqa: BLE001  # the package itself panics, which is no Exception, where some added tokens overlap
        reject()
    assert encode_chunk(tokenizer, pa.array(texts, pa.string())).to_pylist() == expected
    if find_rule(tokenizer.json) is not None:
        assert by_words(tokenizer, texts) == expected


@pytest.mark.parametrize("name", ["bert-base-uncased", "gpt2"])
def test_real_tokenizers_are_followed_by_words_over_real_text(data_folder: Path, name: str):
    tokenizer = load_tokenizer(data_folder / "tokenizers" / name)
    lines = (data_folder / "wikitext2/valid.txt").read_text("utf-8").split("\n")[:300]
    play = (data_folder / "tinyshakespeare/input.txt").read_text("utf-8")[:60_000].split("\n\n")
    assert_encodes_alike(tokenizer, [*lines, *play, Path(__file__).read_text("utf-8")])


@pytest.mark.parametrize("name", ["bert-base-uncased", "gpt2"])
@given(texts=st.lists(HURTFUL, max_size=8))
def test_real_tokenizers_are_followed_by_words_over_texts_that_hurt(data_folder: Path, name: str, texts: list[str]):
    assert_encodes_alike(_loaded(data_folder / "tokenizers" / name), texts)


@cache
def _loaded(folder: Path) -> Tokenizer:
    return load_tokenizer(folder)


def _gpt(place: int) -> Tokenizer:
    """Split by one of GPT's patterns, and give each split one id."""
    return with_parts(listed(), pre_tokenizer=splitter("Split", pattern={"Regex": list(PATTERNS)[place]}))


def _wider(before: bytes, after: bytes) -> Callable[[Rule], Rule]:
    """Cut between two more bytes."""
    return lambda rule: evolve(rule, cuts=evolve(rule.cuts, pairs=(*rule.cuts.pairs, (before, after))))


def _bolder(**switches: bool) -> Callable[[Rule], Rule]:
    """Take a cut for harmless where it is not."""
    return lambda rule: evolve(rule, cuts=evolve(rule.cuts, **switches))


def _composed() -> Tokenizer:
    return with_parts(listed(), normalizer={"type": "NFC"}, pre_tokenizer=splitter("Whitespace"))


def _late() -> Tokenizer:
    token = {"content": "x.y", "single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    data = jsons.loads(trained("wordpiece", lowercase=True).json)
    return with_parts(data, added_tokens=[*data["added_tokens"], {"id": 900, **token}])


@pytest.mark.parametrize(
    ("tokenizer", "text", "broken"),
    [
        pytest.param(_gpt(0), "it's", _wider(b"'", b"s"), id="an apostrophe cut from its letter"),
        pytest.param(_gpt(1), "end.\nNext", _wider(b".", b"\n"), id="a line end cut from punctuation"),
        pytest.param(_gpt(1), "f(a", _wider(b"(", b"a"), id="letters cut from punctuation"),
        pytest.param(_gpt(-1), "don't", _wider(b"n", b"'"), id="a contraction cut in two"),
        pytest.param(KNOWN["words"], "a_b", _wider(b"a", b"_"), id="an underscore taken for punctuation"),
        pytest.param(KNOWN["unigram"], "a\nb", _wider(b"a", b"\n"), id="any white space taken for a space"),
        pytest.param(_composed(), "<\u0338 b", _wider(b"<", b"\xcc"), id="a cut in front of an accent"),
        pytest.param(_gpt(0), "a\u3000  b", _bolder(strict=False), id="white space that ends a word"),
        pytest.param(KNOWN["unigram"], "a\u3000 b", _bolder(strict=False), id="two spaces, one of them normalized"),
        pytest.param(KNOWN["t5"], "\u0600 b", _bolder(single=False), id="a grapheme cut in two"),
        pytest.param(KNOWN["llama2"], "a b", _bolder(lead=False), id="a space put in front twice"),
        pytest.param(KNOWN["bert"], "[CLS]", lambda rule: evolve(rule, hinted=""), id="an added token cut in two"),
        pytest.param(KNOWN["bert"], "[CLS]", lambda rule: evolve(rule, spelled="x"), id="a row not looked at"),
        pytest.param(_late(), "X.Y", lambda rule: evolve(rule, whole=""), id="a token searched in normalized text cut in two"),
    ],
)
def test_the_law_catches_cuts_that_do_harm(tokenizer: Tokenizer, text: str, broken: Callable[[Rule], Rule]):
    rule = find_rule(tokenizer.json)
    assert rule is not None
    assert_encodes_alike(tokenizer, [text])
    with pytest.raises(AssertionError):
        assert_encodes_alike(tokenizer, [text], rule=broken(rule))


def test_the_law_catches_rows_put_in_the_wrong_place(monkeypatch: pytest.MonkeyPatch):
    texts = ["a [CLS]", "b", "[SEP] c d"]
    assert_encodes_alike(KNOWN["bert"], texts)
    right = encoding.replace_rows
    monkeypatch.setattr(encoding, "replace_rows", lambda rows, places, others: right(rows, places[::-1], others))
    with pytest.raises(AssertionError):
        assert_encodes_alike(KNOWN["bert"], texts)


def kept_words(tokenizer: Tokenizer) -> int:
    """Count the words that were kept of what `encode_chunk` met."""
    memo = find_memo(tokenizer)
    assert memo is not None
    return len(memo)


def _column(count: int, words: int, seed: int = 0) -> pa.StringArray:
    rng = random.Random(seed)
    return pa.array([" ".join(f"w{rng.randrange(words)}" for _ in range(20)) for _ in range(count)])


def _plain(tokenizer: Tokenizer, texts: pa.Array) -> list[list[int]]:
    return [tokenizer.encode(text, special=False) for text in texts.to_pylist()]


@pytest.mark.parametrize("rows", [1, 7, 100, 1000])
def test_a_chunk_is_encoded_alike_however_it_is_cut_and_whatever_came_before(rows: int):
    tokenizer = trained("bpe")
    texts = pa.concat_arrays([_column(300, 50), pa.array([*SENTENCES, "", " ", "[CLS] "] * 20), _column(300, 10**6)])
    parts = [encode_chunk(tokenizer, texts.slice(first, rows)) for first in range(0, len(texts), rows)]
    assert pa.concat_arrays(parts).to_pylist() == _plain(tokenizer, texts)
    assert encode_chunk(tokenizer, texts).to_pylist() == _plain(tokenizer, texts)
    assert encode_chunk(tokenizer, texts.cast(pa.large_string())).to_pylist() == _plain(tokenizer, texts)
    assert encode_chunk(tokenizer, texts.slice(3, 0)).to_pylist() == []
    assert encode_chunk(tokenizer, pa.array(["", ""])).to_pylist() == [[], []]


def memo_of(tokenizer: Tokenizer) -> Memo:
    rule = find_rule(tokenizer.json)
    assert rule is not None
    return Memo(find_caller(engine(tokenizer.json)), rule)


def test_words_that_repeat_are_kept():
    tokenizer = trained("wordpiece")
    encode_chunk(tokenizer, _column(2000, 50))
    assert kept_words(tokenizer) == 100  # with a space in front, and without


def test_of_words_that_do_not_repeat_a_few_are_kept():
    tokenizer = trained("bpe")
    texts = _column(2000, 10**6)
    encode_chunk(tokenizer, texts)
    size = sum(map(len, texts.to_pylist()))
    assert 0 < kept_words(tokenizer) < size / 64 / 5  # words of at least five bytes


def test_a_block_goes_by_words_if_at_most_half_of_its_bytes_are_new():
    memo = memo_of(trained("bpe"))
    assert encode_by_words(memo, pa.array(["ab cd", "ef gh"])) is None
    assert len(memo) == 0
    assert encode_by_words(memo, pa.array(["ab cd ab", " cd ab cd"])) is not None
    assert len(memo) == 3
    assert encode_by_words(memo, pa.array(["ab cd cd ef gh"])) is not None
    assert encode_by_words(memo, pa.array(["ab ij kl"])) is None


def test_small_columns_are_learned_bit_by_bit():
    memo = memo_of(trained("bpe"))
    columns = [pa.array([" ".join(f"word{number}" for number in range(400))])] * 200
    tried = [encode_by_words(memo, column, learned=50) is not None for column in columns]
    assert tried == sorted(tried)  # first not, then always
    assert 0 < sum(tried) < len(tried)


@given(st.sampled_from(list(KNOWN)), st.lists(HURTFUL, max_size=8))
def test_a_few_texts_have_the_same_ids_as_lists(name: str, texts: list[str]):
    column = pa.array(texts, pa.string())
    assert encode_few(KNOWN[name], column) == encode_chunk(KNOWN[name], column).to_pylist()


def test_many_texts_and_long_texts_do_not_become_lists():
    assert encode_few(KNOWN["bert"], pa.array(["a"] * 100)) is None
    assert encode_few(KNOWN["bert"], pa.array(["a " * 5000])) is None


def test_little_text_is_left_alone():
    tokenizer = trained("wordpiece")
    for _ in range(50):
        encode_chunk(tokenizer, pa.array(["a b c"]))
    assert kept_words(tokenizer) == 0


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("texts", [["", "a b " * 2000], ["a b " * 2000, "", ""], ["a b " * 2000, "x " * 9000, ""]])
def test_blocks_may_hold_no_text(texts: list[str], kind: pa.DataType):
    tokenizer = trained("bpe")
    assert encode_chunk(tokenizer, pa.array(texts, kind)).to_pylist() == [tokenizer.encode(text, special=False) for text in texts]


def test_no_words_are_encoded_for_rows_that_go_to_the_tokenizer_whole():
    memo = memo_of(KNOWN["bert"])
    words = " ".join(f"{one}{other}" * 5 for one in "abcdefghij" for other in "abcdefghij")
    rows = [f"{words} {words} {words} {mark}" for mark in ("[CLS]", "[SEP]")]
    assert encode_by_words(memo, pa.array(rows)) is None
    assert len(memo) < 10
    assert encode_by_words(memo, pa.array([words * 3, *rows, words * 9])) is not None
    assert len(memo) > 100


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_version_of_tokenizers_that_was_not_tried_encodes_every_text_itself(name: str, monkeypatch: pytest.MonkeyPatch):
    tokenizer, texts = KNOWN[name], pa.array(["It's  a cat, and a hat.", "a \n[SEP] b"] * 500)
    expected = encode_chunk(tokenizer, texts)
    assert find_memo(tokenizer) is not None
    try:
        for version in ("0.24.0", "0.30.1rc1", "1.0.0-rc.3"):
            forget_words()
            monkeypatch.setattr(hf, "__version__", version)
            assert find_memo(tokenizer) is None
            assert encode_chunk(tokenizer, texts).equals(expected)
    finally:
        forget_words()
