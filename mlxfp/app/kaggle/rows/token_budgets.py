"""Token counts per row and column, known before training, to prevent silent truncation."""

from collections.abc import Iterator
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray
from pyarrow import RecordBatch

from mlxfp import Dataset, Tokenizer, from_table, pipe, to_table, tokenize
from mlxfp.app.kaggle.rows.row_to_text import RowToText
from mlxfp.parts import flat_parts, one_chunk, read_all
from mlxfp.support.checks import check_choice, check_positive, check_text, check_types
from mlxfp.support.errors import DataError

Overflow = Literal["refuse", "cut"]
Counts = NDArray[np.int64]

_IDS = "__tokens__"  # reserved column name
_NAMED = 5  # maximum number of columns in a message; columns with the most tokens come first


@frozen
class ColumnTokens:
    """Token statistics of a column: mean and maximum per row, and fraction of all tokens.

    >>> ColumnTokens("Name", mean=12.5, longest=20, share=0.25).share
    0.25
    """

    column: str
    mean: float = field(kw_only=True)
    longest: int = field(kw_only=True)
    share: float = field(kw_only=True)


@frozen
class TokenBudget:
    """Token statistics of a dataset: mean and maximum per row, fraction of rows above `max_length`, and columns sorted by tokens.

    >>> print(TokenBudget(rows=2, max_length=8, mean=9.0, longest=12, over=0.5))
    2 rows of 9.0 tokens on average, 12 at most; 50.0 % of them above 8
    """

    rows: int = field(kw_only=True)
    max_length: int = field(kw_only=True)
    mean: float = field(kw_only=True)
    longest: int = field(kw_only=True)
    over: float = field(kw_only=True)
    columns: tuple[ColumnTokens, ...] = field(kw_only=True, default=())

    def __str__(self) -> str:
        over = f"{100 * self.over:.1f} % of them above {self.max_length}"
        lines = (
            f"{column.column}: {column.mean:.1f} on average, {column.longest} at most, {100 * column.share:.1f} % of all"
            for column in self.columns
        )
        return "\n  ".join([f"{self.rows:,} rows of {self.mean:.1f} tokens on average, {self.longest} at most; {over}", *lines])


def token_budget(
    dataset: Dataset[Any], tokenizer: Tokenizer, *, max_length: int, column: str = "text", overflow: Overflow = "refuse"
) -> TokenBudget:
    """Count the tokens of every row of a text column, including special tokens.

    If `fit_row_to_text` wrote the text, the result also contains counts per source column, without special tokens. The function reads the
    dataset once, in epoch 0. Raises `DataError` if a row has more than `max_length` tokens. The message names the columns with the
    most tokens. `overflow="cut"` permits longer rows.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> from mlxfp.app.kaggle.specs.specs import ColumnSpec, DatasetSpec, FileSpec
    >>> from mlxfp.app.kaggle.rows.row_to_text import fit_row_to_text
    >>> from mlxfp.text.tokenizers.training import train_tokenizer
    >>> columns = [ColumnSpec(name="name", type="text"), ColumnSpec(name="age", type="numerical")]
    >>> spec = DatasetSpec(name="x", kind="regression", train=FileSpec(name="a"), target=["y"], columns=columns, metric="mae")
    >>> rows = from_examples([{"name": "Ann", "age": 9}, {"name": "Ann and Ben", "age": 5}])
    >>> written = pipe(rows, fit_row_to_text(spec, rows, form="key_value"))
    >>> tokenizer = train_tokenizer(written, kind="wordpiece", vocab_size=60)
    >>> print(token_budget(written, tokenizer, max_length=16))
    2 rows of 13.0 tokens on average, 16 at most; 0.0 % of them above 16
      name: 6.0 on average, 9 at most, 66.7 % of all
      age: 3.0 on average, 3 at most, 33.3 % of all

    See also: `tokenize(truncation="error")` to reject single rows; `tokenize(stride=)` to split a long row into several rows.
    """
    check_types(Dataset, dataset=dataset)
    check_positive(max_length=max_length)
    check_text(column=column)
    check_choice(get_args(Overflow), overflow=overflow)
    writer = next((part for part in flat_parts(dataset) if isinstance(part, RowToText) and part.into == column), None)
    tokens = pipe(dataset, tokenize(tokenizer, column=column, into=_IDS))
    counted = [dict(_count(chunk, tokenizer, writer)) for chunk in read_all(tokens, reader="token_budget")]
    if not sum(len(counts[""]) for counts in counted):
        raise DataError(f"token_budget has no rows to count: {dataset!r} is empty. Give a dataset with at least one row.")
    lengths = {name: np.concatenate([counts[name] for counts in counted]) for name in counted[0]}
    rows = lengths.pop("")
    total = max(1, sum(int(counts.sum()) for counts in lengths.values()))
    columns = [
        ColumnTokens(name, mean=float(counts.mean()), longest=int(counts.max()), share=int(counts.sum()) / total)
        for name, counts in lengths.items()
    ]
    budget = TokenBudget(
        rows=len(rows),
        max_length=max_length,
        mean=float(rows.mean()),
        longest=int(rows.max()),
        over=float((rows > max_length).mean()),
        columns=tuple(sorted(columns, key=lambda column: -column.mean)),
    )
    if budget.over and overflow == "refuse":
        columns_text = ", ".join(f"{column.column} ({column.mean:.1f} tokens a row)" for column in budget.columns[:_NAMED])
        largest_columns = f" The columns with the most tokens: {columns_text}." if columns_text else ""
        raise DataError(
            f"{100 * budget.over:.1f} % of {budget.rows:,} rows have more tokens than max_length={max_length}: {budget.mean:.1f} on "
            f"average, {budget.longest} at most.{largest_columns} Choose one of five remedies. Raise max_length if the model has more "
            'positions. Set form="key_value" for shorter texts. Remove columns from the spec. Set ColumnSpec(absent=["none"]) to omit '
            'values such as "none". Set overflow="cut" to remove the tokens beyond max_length.'
        )
    return budget


def _count(chunk: RecordBatch, tokenizer: Tokenizer, writer: RowToText | None) -> Iterator[tuple[str, Counts]]:
    """Yield pairs of a column name and the token counts per row, int64[N]. The first pair has the name "" and the counts of whole rows."""
    yield "", _lengths(chunk.column(_IDS))
    if writer is not None and set(writer.columns) <= set(chunk.schema.names):
        for name, phrases in writer.phrases(chunk).items():
            texts = from_table(pa.table({"text": phrases.fill_null("")}))
            yield name, _lengths(one_chunk(to_table(pipe(texts, tokenize(tokenizer, special=False)))).column("input_ids"))


def _lengths(tokens: pa.ListArray) -> Counts:
    return np.asarray(np.diff(tokens.offsets.to_numpy()), np.int64)
