"""Text previews of the first items of a pipeline: decoded rows, masks, inputs and labels."""

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from itertools import islice
from typing import Any

from mlxfp.core.chunks import source_rows, to_rows
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import run, start
from mlxfp.core.nodes import check_dataset
from mlxfp.core.notebooks.tokens import IGNORED, Decoder, holds_tokens
from mlxfp.core.row_names import row_name
from mlxfp.support.checks import check_positive
from mlxfp.support.errors import MlxfpError
from mlxfp.support.terminal import COLUMNS, printed

_POSITIONS = 12  # maximum number of printed token positions per row
_WIDTH = 100  # maximum number of characters per value


def preview(dataset: Dataset[Any], *, count: int = 3, tokenizer: Decoder | None = None) -> str:
    """Return a printable preview of the first `count` examples, groups or batches of epoch 0. A group or batch shows up to `count` rows.

    Token columns are printed side by side: inputs, masks and labels for each position, decoded if a tokenizer is given. A dot is an ignored
    label (-100). Images and sounds are described by shape, dtype and range.

    >>> import mlxfp as fp
    >>> print(fp.inspect.preview(fp.from_examples([{"input_ids": [7, 8, 9], "labels": [-100, 9, 2], "name": "a"}])))
    example 0, source row 0
        name  'a'
        place  input_ids  labels
            0          7       ·
            1          8       9
            2          9       2

    See also: `explain`, which reads nothing; `row_origins` for the source rows of a later step; `trace_row` for one row.
    """
    check_dataset(dataset, preview)
    check_positive(count=count)
    show = {"examples": _examples, "groups": _groups, "batches": _batches}[dataset.level]
    with closing(run(dataset, start(0, None))) as items:
        return "\n".join(show((item for item, _ in items), count, tokenizer)) or "no items"


def show_value(value: Any) -> str:
    """Return a value as a single line. Arrays are described by dtype, shape and range. Long texts and lists are shortened."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _array(value)
    if isinstance(value, bytes):
        return f"{len(value):,} bytes: {value[:16]!r}"
    if isinstance(value, list) and len(value) > _POSITIONS and all(isinstance(item, int | float) for item in value):
        return f"{len(value):,} values, {min(value)} to {max(value)}"
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}... ({len(value):,} long)" if hasattr(value, "__len__") else text[:_WIDTH]


def show_row(row: Mapping[str, Any], tokenizer: Decoder | None) -> Iterator[str]:
    """Yield the lines of a row: single values first, then token columns side by side."""
    tokens = {name: value for name, value in row.items() if _is_aligned(value, row.get("input_ids"))}
    others = {name: value for name, value in row.items() if name not in tokens}
    names = [printed(name) for name in islice(others, COLUMNS)]
    width = max(map(len, names), default=0)
    yield from (f"{name:<{width}}  {show_value(value)}" for name, value in zip(names, others.values(), strict=False))
    if len(others) > COLUMNS:
        yield f"... {len(others):,} columns"
    if tokens:
        yield from _decoded(tokens, tokenizer)
        yield from _table(tokens, tokenizer)


def _examples(chunks: Iterator[Any], count: int, tokenizer: Decoder | None) -> Iterator[str]:
    firsts = (chunk.slice(0, count) for chunk in chunks)
    numbered = ((row, number) for chunk in firsts for row, number in zip(to_rows(chunk), source_rows(chunk), strict=True))
    for index, (row, number) in enumerate(islice(numbered, count)):
        yield f"example {index}, source row {row_name(number)}"
        yield from (f"    {line}" for line in show_row(row, tokenizer))


def _groups(chunks: Iterator[Any], count: int, tokenizer: Decoder | None) -> Iterator[str]:
    for index, chunk in enumerate(islice(chunks, count)):
        yield f"group {index}: {chunk.num_rows} examples"
        yield from (f"    {line}" for line in _examples(iter((chunk,)), count, tokenizer))


def _batches(batches: Iterator[Any], count: int, tokenizer: Decoder | None) -> Iterator[str]:
    for index, batch in enumerate(islice(batches, count)):
        yield from batch_lines(batch, f"batch {index}", count, tokenizer)


def batch_lines(batch: Mapping[str, Any], name: str, count: int, tokenizer: Decoder | None) -> Iterator[str]:
    """Yield printable lines about a batch and its first `count` rows."""
    yield f"{name}: {', '.join(f'{printed(name)} {_kind(value)}' for name, value in batch.items())}"
    rows = min((len(value) for value in batch.values() if _kind(value)[-2:] != "[]"), default=0)
    for number in range(min(rows, count)):
        yield f"    row {number}"
        row = {name: _plain(value[number]) for name, value in batch.items() if _kind(value)[-2:] != "[]"}
        yield from (f"        {line}" for line in show_row(row, tokenizer))


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"text[{len(value)}]"
    return f"{str(value.dtype).rpartition('.')[2]}{list(value.shape)}"


def _plain(value: Any) -> Any:
    """Return a row of an array as a plain Python value: a number, or a list of integers."""
    if isinstance(value, str):
        return value
    whole = "int" in str(value.dtype) or "bool" in str(value.dtype)
    return value.tolist() if not value.ndim or (value.ndim == 1 and whole) else value


def _array(value: Any) -> str:
    if not value.size:
        return _kind(value)
    low, high = (f"{end.item():.4g}" if isinstance(end.item(), float) else str(end.item()) for end in (value.min(), value.max()))
    return f"{_kind(value)}, {low} to {high}"


def _is_aligned(value: Any, ids: Any) -> bool:
    """Return True if a column has one integer per token."""
    same = isinstance(value, list) and isinstance(ids, list) and len(value) == len(ids) > 0
    return same and all(isinstance(item, int) for item in value)


def _decoded(columns: Mapping[str, list[int]], tokenizer: Decoder | None) -> Iterator[str]:
    """Yield a line with the decoded text of the ids, without padding."""
    mask = columns.get("attention_mask", columns["input_ids"])
    ids = [number for number, real in zip(columns["input_ids"], mask, strict=True) if real or mask is columns["input_ids"]]
    if tokenizer is not None:
        with suppress(MlxfpError):  # The preview shows no decoded text if an id is outside the vocabulary.
            yield f"decoded  {show_value(tokenizer.decode(ids))}"


def _table(columns: Mapping[str, list[int]], tokenizer: Decoder | None) -> Iterator[str]:
    length = len(columns["input_ids"])
    cells = {"place": [str(position) for position in range(length)][:_POSITIONS]}
    cells |= {name: [_cell(name, value, tokenizer) for value in values[:_POSITIONS]] for name, values in columns.items()}
    widths = {name: max(map(len, (printed(name), *column))) for name, column in cells.items()}
    yield "  ".join(f"{printed(name):>{width}}" for name, width in widths.items())
    for values in zip(*cells.values(), strict=True):
        yield "  ".join(f"{value:>{width}}" for value, width in zip(values, widths.values(), strict=True))
    if length > _POSITIONS:
        padding = columns["attention_mask"].count(0) if "attention_mask" in columns else 0
        yield f"... {length} places" + (f", {padding} of them padding" if padding else "")


def _cell(name: str, value: int, tokenizer: Decoder | None) -> str:
    if value == IGNORED:
        return "·"
    if tokenizer is None or not holds_tokens(name):
        return str(int(value))
    try:
        return printed(tokenizer.tokens([value])[0])
    except MlxfpError:  # An id outside the vocabulary is marked with a question mark.
        return f"{value}?"
