"""The laws of text hold for templates and tokenizers, and catch rendering and encoding that go wrong in bulk."""

from collections.abc import Callable
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import one_chunk, to_rows
from mlxfp.support.errors import DataError
from mlxfp.testing.laws import assert_encodes_each_row, assert_renders_each_row
from mlxfp.testing.strategies import tables, templates


@given(st.data())
def test_templates_render_a_chunk_as_they_render_each_row(data: st.DataObject):
    table = data.draw(tables())
    assert_renders_each_row(data.draw(templates(table.schema)), one_chunk(table))


@attrs.frozen
class Casts(fp.Template):
    """Writes numbers the way Arrow does: NaN as a number."""

    def render(self, chunk: pa.RecordBatch) -> pa.StringArray:
        return chunk.column("x").cast(pa.string()).fill_null(self.missing)


@attrs.frozen
class WholeColumn(fp.Template):
    """Forgets that a missing value in one row says nothing of the others."""

    def render(self, chunk: pa.RecordBatch) -> pa.StringArray:
        gaps = any(row["x"] is None for row in to_rows(chunk))
        return pa.array([self.missing if gaps else self.render_row(row) for row in to_rows(chunk)], pa.string())


@attrs.frozen
class NeverRaises(fp.Template):
    def render(self, chunk: pa.RecordBatch) -> pa.StringArray:
        return pa.array(["?"] * chunk.num_rows)


@attrs.frozen
class AlwaysRaises(fp.Template):
    def render(self, chunk: pa.RecordBatch) -> pa.StringArray:
        raise DataError("no")


@pytest.mark.parametrize("sentence", [Casts("{x}"), WholeColumn("{x}"), NeverRaises("{x}", policy="raise")])
def test_rendering_in_bulk_that_differs_is_caught(sentence: fp.Template):
    with pytest.raises(AssertionError):
        assert_renders_each_row(sentence, pa.record_batch({"x": [1e-7, float("nan"), None]}))


def test_raising_where_no_row_does_is_an_error_of_the_template():
    assert_renders_each_row(AlwaysRaises("{x}", policy="raise"), pa.record_batch({"x": [None, 1]}))
    with pytest.raises(DataError, match=r"no"):
        assert_renders_each_row(AlwaysRaises("{x}"), pa.record_batch({"x": [1]}))


TEXTS = ["the cat sat", "", "on the mat", "  two  spaces ", "the the"]


@pytest.fixture(scope="module")
def tokenizer() -> fp.Tokenizer:
    return fp.train_tokenizer(fp.from_examples([{"text": text} for text in TEXTS]), kind="wordpiece", vocab_size=60)


@given(texts=st.lists(st.text(st.sampled_from("the cat on mäß\n"), max_size=12), max_size=5))
def test_tokenize_is_encoding_each_row(tokenizer: fp.Tokenizer, texts: list[str]):
    assert_encodes_each_row(fp.tokenize(tokenizer), tokenizer, texts)
    assert_encodes_each_row(fp.tokenize(tokenizer, special=False), tokenizer, texts, special=False)


def _by_words(tokenizer: fp.Tokenizer) -> Callable[[fp.Dataset[Any]], fp.Dataset[Any]]:
    """Encode word by word, as if none of them depended on its neighbours and spaces were nothing."""
    kinds = pa.schema({"input_ids": pa.list_(pa.int32())})
    return fp.map(lambda row: {"input_ids": [i for word in row["text"].split() for i in tokenizer.encode(word)]}, schema=kinds)


def test_encoding_that_differs_is_caught(tokenizer: fp.Tokenizer):
    with pytest.raises(AssertionError, match=r"'the cat sat' gets the ids"):
        assert_encodes_each_row(_by_words(tokenizer), tokenizer, TEXTS)
    with pytest.raises(AssertionError, match=r"gets the ids"):
        assert_encodes_each_row(fp.tokenize(tokenizer, max_length=3), tokenizer, TEXTS)
