"""jsonl and wide: JSON Lines compared with polars and orjson, and tables of thousands of columns compared with polars."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import mlxfp as fp
from benchmarks.inputs import natural_text
from benchmarks.measuring import Row, best, installed

_AT_ONCE = 10_000  # rows per batch


def jsonl(*, small: bool) -> list[Row]:
    """Read 100 MB of JSON Lines with three fields as columns."""
    texts = natural_text(1_000_000 if small else 20_000_000)
    lines = [json.dumps({"id": place, "text": text, "score": len(text) / 7}) for place, text in enumerate(texts)] * (1 if small else 5)
    with TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl")
        path.write_text("\n".join(lines) + "\n", "utf-8")
        size = path.stat().st_size / 1e6
        groups = fp.pipe(fp.read_jsonl(path), fp.batch(_AT_ONCE))
        work = f"{size:.0f} MB of JSON lines, whole"
        ours = partial(_consume, groups)
        return [
            _against("jsonl", work, "polars", ours=ours, theirs=partial(_polars_lines, path), size=size, bar=0.22),
            _against("jsonl", work, "orjson", ours=ours, theirs=partial(_orjson_lines, path), size=size, bar=0.5),
        ]


def wide(*, small: bool) -> list[Row]:
    """Read the schema and 50 of 8,000 columns and render a sentence. Then compare with a quarter of the columns."""
    columns = 400 if small else 8000
    out = []
    for kind in ("csv", "parquet"):
        with _table(columns, kind) as path, _table(columns // 4, kind) as quarter:
            ours, theirs = partial(_ours, kind, path, columns), partial(_polars_columns, kind, path, columns)
            size = path.stat().st_size / 1e6
            work = f"50 of {columns:,} columns, 2,000 rows, {kind}"
            out.append(_against("wide", work, "polars", ours=ours, theirs=theirs, size=size, bar=0.3))
            all_of, part = best([ours, partial(_ours, kind, quarter, columns // 4)])
            work = f"the same, time against that for a quarter of the columns, {kind}"
            out.append(Row("wide", work, f"{all_of:.3f} s", f"{part:.3f} s", all_of / part, 4.4, "at most"))
    return out


def _against(  # noqa: PLR0913  # the columns of a row
    row: str, work: str, package: str, *, ours: Callable[[], Any], theirs: Callable[[], Any], size: float, bar: float
) -> Row:
    if not installed(package):
        return Row(row, work, "-", f"{package}: not installed", None, bar)
    mine, other = best([ours, theirs])
    return Row(row, work, f"{size / mine:.0f} MB/s", f"{package} {size / other:.0f} MB/s", other / mine, bar)


def _polars_lines(path: Path) -> None:
    import polars as pl

    _consume(pl.scan_ndjson(path).collect_batches(chunk_size=_AT_ONCE))


def _orjson_lines(path: Path) -> None:
    import orjson

    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)


@contextmanager
def _table(columns: int, kind: str) -> Iterator[Path]:
    drawn = np.random.default_rng(0)
    table = pa.table({f"c{place}": drawn.normal(size=2000).astype(np.float32) for place in range(columns)})
    with TemporaryDirectory() as folder:
        path = Path(folder, f"table.{kind}")
        pyarrow.csv.write_csv(table, path) if kind == "csv" else pyarrow.parquet.write_table(table, path)
        yield path


def _named(columns: int) -> list[str]:
    return [f"c{place}" for place in range(0, columns, columns // 50)]


def _ours(kind: str, path: Path, columns: int) -> None:
    read: Any = fp.read_csv if kind == "csv" else fp.read_parquet
    names = _named(columns)
    fp.schema(read(path))
    sentence = " ".join(f"{name} {{{name}:.2f}}" for name in names)
    _consume(fp.pipe(read(path), fp.select_columns(names), fp.template(sentence), fp.batch(32)))


def _polars_columns(kind: str, path: Path, columns: int) -> None:
    import polars as pl

    table: Any = pl.scan_csv(path) if kind == "csv" else pl.scan_parquet(path)
    names = _named(columns)
    table.collect_schema()
    pieces = [piece for name in names for piece in (pl.lit(f" {name} "), pl.col(name).round(2).cast(pl.String))]
    _consume(table.select(*names, text=pl.concat_str(pieces)).collect().iter_slices(32))


def _consume(batches: Any) -> None:
    for _ in batches:
        pass
