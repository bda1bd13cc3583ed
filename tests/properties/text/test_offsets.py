"""Where the text of each token begins and ends: as the tokenizer itself says, and as slices of the text show."""

import json as jsons
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import tokenizers as hf
from hypothesis import example, given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.testing import laws
from mlxfp.text.tokenizing import Truncation, tokenize
from tests.text.configurations import HURTFUL, known, sequence, splitter, tokenizers, with_parts
from tests.text.corpora import SENTENCES, TEXTS, framings, stage_of, trained

Span = tuple[int, int]


def spans(row: dict[str, Any]) -> list[Span]:
    return list(zip(row["token_starts"], row["token_ends"], strict=True))


def assert_offsets_are_the_packages(tokenizer: fp.Tokenizer, texts: list[str], **options: Any) -> None:
    """Law: ids and offsets of a column are those of the tokenizer itself for each text."""
    own = hf.Tokenizer.from_str(tokenizer.json)
    if options.get("max_length"):
        own.enable_truncation(options["max_length"], stride=options.get("stride", 0), direction=options.get("truncation", "right"))
    chunk = pa.record_batch({"text": pa.array(texts, pa.string()), "other": pa.array(texts[::-1], pa.string())})
    pairs = zip(texts, texts[::-1] if "pair" in options else [None] * len(texts), strict=True)
    expected = [own.encode(*pair, add_special_tokens=options.get("special", True)) for pair in pairs]
    rows = stage_of(tokenize(tokenizer, offsets=True, **options)).apply(chunk).to_pylist()
    assert [row["input_ids"] for row in rows] == [encoding.ids for encoding in expected]
    assert [spans(row) for row in rows] == [encoding.offsets for encoding in expected]


@example(
    place=4, texts=["travelling in class 3 paid 7.25.", "   "], pair=False, max_length=5, side="left", special=False
)  # but not in front of what is left
@example(place=4, texts=[" in  class"], pair=False, max_length=None, side="right", special=True)  # RoBERTa's frame trims spaces
@given(
    place=st.integers(0, 8),
    texts=st.lists(TEXTS, max_size=4),
    pair=st.booleans(),
    max_length=st.none() | st.integers(5, 24),
    side=st.sampled_from(["right", "left"]),
    special=st.booleans(),
)
def test_offsets_are_those_of_the_tokenizer(
    place: int, texts: list[str], max_length: int | None, side: Truncation, *, pair: bool, special: bool
):
    options: dict[str, Any] = {"pair": "other"} if pair else {}
    options |= {} if max_length is None else {"max_length": max_length, "truncation": side}
    assert_offsets_are_the_packages(framings()[place], texts, special=special, **options)


@given(tokenizers(), st.lists(HURTFUL, max_size=3))
def test_tokenizers_of_any_parts_keep_that_law(tokenizer: fp.Tokenizer, texts: list[str]):
    assert_offsets_are_the_packages(tokenizer, texts)


def llama3() -> fp.Tokenizer:
    """Make a tokenizer that looks whole words up before it merges, as Llama 3 does: its offsets were wrong once (transformers#33675)."""
    data = jsons.loads(trained("bpe").json)
    split = splitter("Split", pattern=jsons.loads(known()["llama3"].json)["pre_tokenizer"]["pretokenizers"][0]["pattern"])
    parts = sequence([split, splitter("ByteLevel", use_regex=False)], "pretokenizers")
    return with_parts({**data, "model": {**data["model"], "ignore_merges": True}}, pre_tokenizer=parts)


def characters(tokenizer: fp.Tokenizer, text: str) -> Iterator[tuple[str, str]]:
    """Yield what the tokens of one span decode to, and the slice of the text."""
    (row,) = fp.pipe(fp.from_examples([{"text": text}]), tokenize(tokenizer, offsets=True, special=False))
    groups: list[tuple[Span, list[int]]] = []
    for span, number in zip(spans(row), row["input_ids"], strict=True):
        if groups and groups[-1][0] == span:
            groups[-1][1].append(number)  # the bytes of one character
        else:
            groups.append((span, [number]))
    for (start, end), ids in groups:
        yield tokenizer.decode(ids, special=True), text[start:end]


@pytest.mark.parametrize("tokenizer", [known()["gpt2"], known()["llama3"], known()["starcoder"], llama3()])
@given(text=st.sampled_from(SENTENCES) | st.text(max_size=12) | st.sampled_from(["Hello [SEP] é😀x", "a\u0301b  in 漢字"]))
def test_slices_of_the_text_are_what_the_tokens_of_byte_level_tokenizers_decode_to(tokenizer: fp.Tokenizer, text: str):
    found = list(characters(tokenizer, text))
    assert all(decoded == part or "\ufffd" in decoded for decoded, part in found)
    if all(decoded == part for decoded, part in found):
        assert "".join(part for _, part in found) == text


@pytest.mark.parametrize("name", known())
def test_every_kind_of_tokenizer_covers_every_visible_character(name: str):
    for text in ("A 22 year old in class [SEP] 3.", "it's  a don't\n old", "漢字 and \U0001f468\u200d\U0001f469 stand"):
        (row,) = fp.pipe(fp.from_examples([{"text": text}]), tokenize(known()[name], offsets=True))
        covered = {place for start, end in spans(row) for place in range(start, end)}
        assert {place for place, letter in enumerate(text) if letter.isprintable() and letter != " "} <= covered
        assert all(0 <= start <= end <= len(text) for start, end in spans(row))
        assert row["token_starts"][1:-1] == sorted(row["token_starts"][1:-1])


@pytest.mark.parametrize("name", ["bert", "gpt2", "unigram", "t5", "llama2"])
def test_a_span_of_characters_finds_its_tokens(name: str):
    text = "The café in class, female é"
    (row,) = fp.pipe(fp.from_examples([{"text": text}]), tokenize(known()[name], offsets=True, special=False))
    for word in ("café", "class", "female"):
        begin = text.index(word)
        inside = [span for span in spans(row) if span[0] < begin + len(word) and span[1] > begin]
        assert text[inside[0][0] : inside[-1][1]].strip(" ") == word


def test_the_pieces_of_a_long_text_keep_their_places_in_it():
    tokenizer, text = trained("wordpiece"), " ".join(SENTENCES)
    own = hf.Tokenizer.from_str(tokenizer.json)
    for side in ("right", "left"):
        own.enable_truncation(9, stride=3, direction=side)
        encoding = own.encode(text)
        rows = list(fp.pipe(fp.from_examples([{"text": text}]), tokenize(tokenizer, max_length=9, stride=3, truncation=side, offsets=True)))
        assert [row["input_ids"] for row in rows] == [piece.ids for piece in (encoding, *encoding.overflowing)]
        assert [spans(row) for row in rows] == [piece.offsets for piece in (encoding, *encoding.overflowing)]


def test_a_sentence_of_a_template_has_offsets_too():
    rows = fp.from_examples([{"sex": "male"}] * 3)
    stages = [fp.template("a {sex} in class"), tokenize(trained("wordpiece"), offsets=True, literal=True)]
    row = fp.pipe(rows, *stages)[0]
    assert [row["text"][start:end] for start, end in spans(row)] == ["", "a", "male", "in", "class", ""]


def test_offsets_are_a_part_of_the_stage():
    plain, more = tokenize(trained("bpe")), tokenize(trained("bpe"), offsets=True)
    assert fp.inspect.fingerprint(plain) != fp.inspect.fingerprint(more)
    assert repr(more) == "tokenize(tokenizer=Tokenizer(BPE, vocab_size=300), offsets=True)"
    dataset = fp.pipe(fp.from_examples([{"text": text} for text in SENTENCES]), more)
    assert dataset.resolved.schemas[-1].names == ["text", "input_ids", "token_starts", "token_ends"]
    laws.assert_resumable(dataset)


def test_arguments_that_cannot_be_are_refused():
    with pytest.raises(ArgumentError, match="into='token_ends' is empty or a reserved column name"):
        tokenize(trained("bpe"), offsets=True, into="token_ends")
    with pytest.raises(ArgumentTypeError, match="offsets must be bool, got str"):
        tokenize(trained("bpe"), offsets="yes")  # type: ignore[arg-type]  # the mistake under test
