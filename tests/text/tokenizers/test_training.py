"""Training tokenizers: the same text, the same tokenizer."""

import os
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError, UnknownNameError
from mlxfp.text.tokenizers.unigram_training import train_unigram
from tests.text.corpora import SENTENCES, TEXTS, trained

KINDS: list[Any] = ["bpe", "wordpiece", "unigram"]

# Many words that are equally frequent, so that every tie must be broken, in a process of its own with its own hash seed.
_OURS = """
from mlxfp.data.sources.in_memory import from_table
from mlxfp.text.tokenizers.training import train_tokenizer
rows = from_table({"text": [" ".join(a + b + c for c in "klmno") for a in "abcdefgh" for b in "aeiou"] * 2})
print([train_tokenizer(rows, kind=kind, vocab_size=size).json for kind, size in (("bpe", 400), ("wordpiece", 120), ("unigram", 90))])
"""
_THEIRS = """
import tokenizers as hf
text = [" ".join(a + b + c for c in "klmno") for a in "abcdefgh" for b in "aeiou"] * 2
for model, trainer in ((hf.models.WordPiece(), hf.trainers.WordPieceTrainer), (hf.models.Unigram(), hf.trainers.UnigramTrainer)):
    tokenizer = hf.Tokenizer(model)
    tokenizer.pre_tokenizer = hf.pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(text, trainer(vocab_size=90, show_progress=False))
    print(tokenizer.to_str())
"""


def outputs(script: str, count: int) -> set[str]:
    """Run a script in fresh processes, with other hash seeds and with and without threads; return what they print."""
    runs = [{"PYTHONHASHSEED": str(seed), "TOKENIZERS_PARALLELISM": "true" if seed % 2 else "false"} for seed in range(count)]
    return {
        subprocess.run([sys.executable, "-c", script], env={**os.environ, **env}, capture_output=True, text=True, check=True).stdout
        for env in runs
    }


def test_the_same_text_gives_the_same_tokenizer_in_every_process():
    (found,) = outputs(_OURS, 3)
    assert len(found) > 1000


def test_that_law_is_one_the_packages_trainers_break():
    # When this fails, the trainers have become deterministic, and ours for WordPiece and Unigram can go.
    assert len(outputs(_THEIRS, 4)) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_neither_chunks_nor_the_order_of_rows_count(kind: Any):
    text = [*SENTENCES, *SENTENCES, "ab cd ef gh ab cd ef gh"]
    rows, reverse = fp.from_table({"text": text}), fp.from_table({"text": text[::-1]})
    options = {"kind": kind, "vocab_size": 300}
    tokenizer = fp.train_tokenizer(rows, **options)
    assert fp.train_tokenizer(fp.pipe(rows, fp.batch(5)), **options) == tokenizer
    assert fp.train_tokenizer(reverse, **options) == tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first_and_frame_a_text(kind: Any):
    tokenizer = trained(kind)
    assert tokenizer.tokens(range(5)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    ids, types = tokenizer.encode_pair("class", "male")
    ends = [place for place, number in enumerate(ids) if number == tokenizer.sep_id]
    assert (ids[0], ends[-1]) == (tokenizer.cls_id, len(ids) - 1)
    assert types == [0] * (ends[0] + 1) + [1] * (len(ids) - ends[0] - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_is_no_larger_than_asked_for(kind: Any):
    rows = fp.from_table({"text": list(SENTENCES) * 3})
    for size in (270, 290, 2000):
        tokenizer = fp.train_tokenizer(rows, kind=kind, vocab_size=size)
        assert tokenizer.vocab_size <= size
        assert tokenizer.vocab_size >= min(size, 190)


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_the_training_is_unknown(kind: Any):
    tokenizer = trained(kind)
    assert not any(tokenizer.unk_id in tokenizer.encode(sentence) for sentence in SENTENCES)


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_in_the_text_keep_their_ids(kind: Any):
    tokenizer = fp.train_tokenizer(fp.from_table({"text": ["[MASK] [PAD] x[SEP]"] * 5}), kind=kind, vocab_size=300)
    assert tokenizer.tokens(range(5)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert [number for number in tokenizer.encode("[MASK] [PAD] x[SEP]") if number < 5] == [2, 4, 0, 3, 3]


def test_frequent_words_become_tokens():
    for kind in KINDS:
        tokenizer = trained(kind)
        assert len(tokenizer.encode("A year old male travelling in class 3", special=False)) <= 12


def test_lower_casing_is_part_of_the_tokenizer():
    rows = fp.from_table({"text": ["Aa BB aA"] * 3})
    for kind, size in (("bpe", 300), ("wordpiece", 30), ("unigram", 30)):
        tokenizer = fp.train_tokenizer(rows, kind=kind, vocab_size=size, lowercase=True)  # type: ignore[arg-type]  # one of the kinds
        assert tokenizer.encode("AA bb") == tokenizer.encode("aa BB")
        assert tokenizer.unk_id not in tokenizer.encode("aA bB")


def test_a_rendered_column_can_be_trained_on():
    rows = fp.from_examples([{"Age": 22}, {"Age": 38}])
    tokenizer = fp.train_tokenizer(fp.pipe(rows, fp.template("Aged {Age}", into="s")), column="s", kind="wordpiece", vocab_size=40)
    assert tokenizer.tokens(tokenizer.encode("Aged", special=False)) == ["Aged"]


@given(st.dictionaries(TEXTS.filter(bool), st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 9))
def test_unigram_pieces_hold_every_character_and_are_shares_of_one(counts: dict[str, int], room: int):
    characters = set("".join(counts))
    pieces = train_unigram(counts, len(characters) + room)
    assert characters <= {piece for piece, _ in pieces}
    assert len(pieces) <= len(characters) + room
    assert [score for _, score in pieces] == sorted((score for _, score in pieces), reverse=True)
    assert all(score <= 0 for _, score in pieces)


def test_vocabularies_that_cannot_hold_the_characters_are_refused():
    rows = fp.from_table({"text": ["abc def"] * 2})
    with pytest.raises(
        ArgumentError, match=r"vocab_size=260 is too small: 256 bytes and 5 special tokens need 261\. Increase vocab_size\.$"
    ):
        fp.train_tokenizer(rows, vocab_size=260)
    with pytest.raises(
        ArgumentError, match=r"vocab_size=9 is too small: 10 characters \(alone, or inside words\) and 5 special .* need 15"
    ):
        fp.train_tokenizer(rows, kind="wordpiece", vocab_size=9)
    with pytest.raises(ArgumentError, match="vocab_size=9 is too small: 7 characters and 5 special tokens need 12"):
        fp.train_tokenizer(rows, kind="unigram", vocab_size=9)
    assert fp.train_tokenizer(rows, kind="unigram", vocab_size=12).vocab_size == 12
    assert fp.train_tokenizer(rows, kind="wordpiece", vocab_size=15).vocab_size == 15


@pytest.mark.parametrize("kind", KINDS)
def test_missing_or_no_text_is_an_error(kind: Any):
    with pytest.raises(
        DataError, match="train_tokenizer needs a text in each row of column 'text', but the text of source row 1 is missing"
    ):
        fp.train_tokenizer(fp.from_examples([{"text": "a"}, {"text": None}]), kind=kind, vocab_size=300)
    with pytest.raises(DataError, match=r"train_tokenizer got no text: .* is empty"):
        fp.train_tokenizer(fp.from_table(pa.table({"text": pa.array([], pa.string())})), kind=kind, vocab_size=300)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_text_that_is_empty_gives_a_tokenizer_of_what_is_there_without_text(kind: Any):
    tokenizer = fp.train_tokenizer(fp.from_examples([{"text": ""}, {"text": ""}]), kind=kind, vocab_size=300)
    assert tokenizer.encode("") == [2, 3]
    assert tokenizer.vocab_size == (5 + 256 if kind == "bpe" else 5)


def test_arguments_that_cannot_work_are_refused():
    rows = fp.from_examples([{"text": "a", "n": 5}])
    with pytest.raises(SchemaError, match="train_tokenizer needs text in column 'n', got int64"):
        fp.train_tokenizer(rows, column="n", vocab_size=300)
    with pytest.raises(UnknownNameError, match=r"No kind is named 'word'\."):
        fp.train_tokenizer(rows, kind="word", vocab_size=300)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ArgumentTypeError, match="vocab_size must be an int"):
        fp.train_tokenizer(rows, vocab_size="300")  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ArgumentTypeError, match="works on a dataset, got list"):
        fp.train_tokenizer(["a"], vocab_size=300)  # type: ignore[arg-type]  # the mistake under test


def test_a_vocabulary_of_little_more_than_bytes_is_a_warning():
    """Byte-level BPE with 1,000 tokens from three words has only bytes, and the user learns the reason."""
    with pytest.warns(RuntimeWarning, match=r"got vocab_size=1000, but the vocabulary has 26\d tokens: 256 bytes, 5 special tokens and"):
        fp.train_tokenizer(fp.from_examples([{"text": "one two six"}]), vocab_size=1000)


@pytest.mark.parametrize("kind", KINDS)
def test_case_a1_a_word_of_50_000_letters_teaches_no_token_above_100_characters(kind: Any):
    """Longer tokens overflow the stack of engines, which ends the process."""
    rows = fp.from_examples([{"text": "a" * 50_000 + " good"}] * 24)
    tokenizer = fp.train_tokenizer(rows, vocab_size=400, kind=kind)
    assert max(map(len, tokenizer.tokens(range(tokenizer.vocab_size)))) <= 100
    assert len(list(fp.pipe(rows, fp.tokenize(tokenizer, max_length=64)))) == 24


@pytest.mark.parametrize("size", [10**12, 2**63])
def test_case_e13_a_vocabulary_size_beyond_memory_is_refused(size: int):
    with pytest.raises(ArgumentError, match=r"vocab_size must be "):
        fp.train_tokenizer(fp.from_examples([{"text": "a"}]), vocab_size=size)
