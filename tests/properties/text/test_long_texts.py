"""The law of strides: the pieces of a long text are those of the tokenizer's own truncation, overflow included."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tokenizers as hf
from hypothesis import example, given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import number_rows, row_keys, source_rows
from mlxfp.support.errors import ArgumentError
from mlxfp.testing import laws
from mlxfp.testing.probing import from_chunks
from mlxfp.text.encoding.framing import find_frame
from tests.text.corpora import TEXTS, framings, trained

TWICE = 7  # the frame that writes a text twice


def reference(tokenizer: fp.Tokenizer, texts: list[str], max_length: int, stride: int, side: str, *, special: bool) -> list[list[int]]:
    """Encode row by row with the tokenizer's own truncation."""
    own = hf.Tokenizer.from_str(tokenizer.json)
    own.enable_truncation(max_length, stride=stride, direction=side)
    encodings = [own.encode(text, add_special_tokens=special) for text in texts]
    return [piece.ids for encoding in encodings for piece in (encoding, *encoding.overflowing)]


def chunk_of(texts: list[str]) -> pa.RecordBatch:
    return number_rows(pa.record_batch({"text": pa.array(texts, pa.string()), "label": pa.array(range(len(texts)), pa.int64())}), 0, 10)


def pieces_of(stage: Any, chunk: pa.RecordBatch) -> list[pa.RecordBatch]:
    return list(stage.step((), chunk)[1])


def assert_cut_alike(stage: Any, texts: list[str], expected: list[list[int]]) -> None:
    """Law: the pieces of a chunk's texts are those that the tokenizer itself makes, in its order."""
    assert [ids for chunk in pieces_of(stage, chunk_of(texts)) for ids in chunk["input_ids"].to_pylist()] == expected


@example(place=0, texts=["a class " * 40], room=5, stride=4, side="left", special=True)
@given(
    place=st.integers(0, 8).filter(lambda place: place != TWICE),
    texts=st.lists(st.builds(lambda text, times: " ".join([text] * times), TEXTS, st.integers(1, 9)), max_size=4),
    room=st.integers(1, 12),
    stride=st.integers(0, 11),
    side=st.sampled_from(["right", "left"]),
    special=st.booleans(),
)
def test_the_pieces_are_those_of_the_tokenizer(place: int, texts: list[str], room: int, stride: int, side: Any, *, special: bool):
    tokenizer = framings()[place]
    max_length = room + find_frame(tokenizer.json, pair=False, special=True).added
    stage = fp.tokenize(tokenizer, max_length=max_length, stride=stride % room, truncation=side, special=special)
    assert_cut_alike(stage, texts, reference(tokenizer, texts, max_length, stride % room, side, special=special))


def test_the_law_catches_pieces_that_are_off(monkeypatch: pytest.MonkeyPatch):
    tokenizer, texts = trained("wordpiece"), ["a class in the year " * 9]
    stage = fp.tokenize(tokenizer, max_length=8, stride=2, special=False)
    assert_cut_alike(stage, texts, reference(tokenizer, texts, 8, 2, "right", special=False))
    with pytest.raises(AssertionError):
        assert_cut_alike(stage, texts, reference(tokenizer, texts, 8, 3, "right", special=False))
    whole = type(stage)._cut

    def without_last(self: Any, ragged: Any) -> Any:
        return tuple(part[:-1] for part in whole(self, ragged))

    monkeypatch.setattr(type(stage), "_cut", without_last)
    with pytest.raises(AssertionError):
        assert_cut_alike(stage, texts, reference(tokenizer, texts, 8, 2, "right", special=False))


def test_every_piece_has_the_other_columns_its_source_row_and_a_key_of_its_own():
    stage = fp.tokenize(trained("wordpiece"), max_length=6, stride=1)
    (chunk,) = pieces_of(stage, chunk_of(["in class", "a class in the year " * 3]))
    assert len(chunk) > 3
    assert chunk["label"].to_pylist() == [0] + [1] * (len(chunk) - 1)
    assert source_rows(chunk).tolist() == [10] + [11] * (len(chunk) - 1)
    assert len(set(row_keys(chunk).tolist())) == len(chunk)


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(1, 3))
def test_a_stage_of_pieces_obeys_the_laws_of_stages(texts: list[str], size: int):
    table = pa.table({"text": pa.array(texts, pa.string())})
    stage, other = (fp.tokenize(trained("wordpiece"), max_length=5, stride=stride) for stride in (1, 2))
    chunks = table.to_batches(max_chunksize=size)
    dataset = stage(from_chunks(chunks))
    laws.assert_value(dataset)
    laws.assert_told_apart(dataset, other(from_chunks(chunks)))
    laws.assert_pure_stages(dataset)
    laws.assert_chunks_do_not_matter(stage, chunks, table.to_batches())
    laws.assert_resumable(dataset)
    laws.assert_described(dataset)
    laws.assert_lazy(stage, chunks)


def test_a_text_of_many_pieces_comes_in_several_chunks():
    dataset = fp.pipe(fp.from_examples([{"text": "class " * 999}]), fp.tokenize(trained("bpe"), max_length=3, stride=2, special=False))
    chunks = pieces_of(dataset.stages[0], chunk_of(["class " * 999]))
    assert max(chunk.num_rows for chunk in chunks) == 256
    assert sum(chunk.num_rows for chunk in chunks) == len(list(dataset)) > 500


def test_randomness_differs_between_the_pieces_of_a_text():
    def draw(row: Any, random: np.random.Generator) -> Any:
        return {"drawn": int(random.integers(1 << 40))}

    stages = fp.tokenize(trained("wordpiece"), max_length=4, stride=0), fp.map(draw, seed=0)
    drawn = [row["drawn"] for row in fp.pipe(fp.from_examples([{"text": "a class in the year"}]), *stages)]
    assert len(drawn) == len(set(drawn)) > 1


def test_mistakes_are_named():
    tokenizer = trained("wordpiece")
    for options, message in (
        ({"stride": 2}, r"stride=2 has no effect without max_length\. Pass max_length="),
        ({"stride": 2, "max_length": 4}, r"stride=2 must be less than 2, the number of text tokens per row with max_length=4"),
        ({"stride": 1, "max_length": 9, "pair": "other"}, r"stride=1 needs a single text column, got the pair 'text' and 'other'"),
        ({"stride": 1, "max_length": 9, "truncation": "error"}, r'stride=1 splits long texts instead of truncating, so truncation="error"'),
        ({"stride": -1, "max_length": 9}, r"stride must be at least 0, got stride=-1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            fp.tokenize(tokenizer, **options)
    with pytest.raises(
        ArgumentError, match=r"stride=1 does not work with a tokenizer that repeats the ids of each text, got Tokenizer.*\. Use"
    ):
        fp.tokenize(framings()[TWICE], max_length=9, stride=1)
    assert repr(fp.tokenize(tokenizer, max_length=9, stride=3)).endswith("max_length=9, stride=3)")
