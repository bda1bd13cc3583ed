"""Laws of text. Rendering or encoding a chunk gives the same results as rendering or encoding its rows one by one."""

from collections.abc import Sequence

import pyarrow as pa

from mlxfp.core.chunks import RecordBatch, to_rows
from mlxfp.data.sources.in_memory import from_table
from mlxfp.support.errors import DataError
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.datasets import Transform
from mlxfp.text.templates.templates import Template
from mlxfp.text.tokenizers.tokenizer import Tokenizer

__tracebackhide__ = True


def assert_renders_each_row(sentence: Template, chunk: RecordBatch) -> None:
    """Check that a template gives the same texts for a chunk as for its rows one by one, or the same error `DataError`.

    >>> import pyarrow as pa
    >>> assert_renders_each_row(Template("{x:.1f}"), pa.record_batch({"x": [0.5, None]}))
    """
    try:
        expected = [sentence.render_row(row) for row in to_rows(chunk)]
    except DataError:
        try:
            rendered = sentence.render(chunk)
        except DataError:
            return
        raise AssertionError(
            f"the method render_row of {sentence!r} raises DataError for a row, but the method render gives {rendered.to_pylist()}"
        ) from None
    assert_same(sentence.render(chunk).to_pylist(), expected, f"{sentence!r} renders a chunk as it renders each row")


def assert_encodes_each_row(transform: Transform, tokenizer: Tokenizer, texts: Sequence[str], *, special: bool = True) -> None:
    """Check that a stage that converts `text` to `input_ids` gives the same ids as `tokenizer.encode`.

    >>> import mlxfp as fp
    >>> tokenizer = fp.train_tokenizer(fp.from_examples([{"text": "a cat"}]), kind="wordpiece", vocab_size=20)
    >>> assert_encodes_each_row(fp.tokenize(tokenizer), tokenizer, ["a cat", "", "cats"])
    """
    encoded = [row["input_ids"] for row in transform(from_table({"text": pa.array(texts, pa.string())}))]
    for text, ids in zip(texts, encoded, strict=True):
        assert_same(ids, tokenizer.encode(text, special=special), f"{text!r} gets the ids that {tokenizer!r} encodes it to")
