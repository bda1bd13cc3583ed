"""cursor: the number of rows read again when a run resumes in the middle of a long pipeline. Counted, not timed."""

import tempfile
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from attrs import frozen

import mlxfp as fp
from benchmarks.inputs import SENTENCE, passengers
from benchmarks.measuring import Row, medians

_GLOBAL = 256  # rows of all ranks in a batch


@frozen(repr=False)
class _Count(fp.Stage):
    """Stage that returns chunks unchanged and records their row counts."""

    seen: list[int]

    def step(self, state: Any, chunk: Any) -> tuple[Any, Iterable[Any]]:
        self.seen.append(chunk.num_rows)
        return state, (chunk,)


def rows(*, small: bool) -> list[Row]:
    """Resume after each tenth of the items of a pipeline with nine parts, and count the file rows read by each run."""
    table = passengers(5000 if small else 100_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        pyarrow.csv.write_csv(table, path)
        tokenizer = fp.train_tokenizer(fp.pipe(fp.read_csv(path), fp.take(2000), fp.template(SENTENCE)), kind="wordpiece", vocab_size=1000)
        seen: list[int] = []
        batches = fp.pipe(
            fp.read_csv(path),
            _Count(seen),
            fp.filter(_grown),
            fp.template(SENTENCE),
            fp.tokenize(tokenizer, max_length=96),
            fp.shuffle(seed=0, buffer=2000),
            fp.pack(512),
            fp.batch(8),
            fp.collate(fp.collators.causal(pad_id=tokenizer.pad_id, packed=True, length=511)),
        )
        read = [(cursor, sum(seen)) for _, cursor in fp.iterate(batches)]
        chunk, repeated = max(seen), []
        for cursor, before in read[:: len(read) // 10]:
            seen.clear()
            for _ in fp.iterate(batches, fp.Cursor.from_bytes(cursor.to_bytes())):
                pass
            repeated.append(before + sum(seen) - table.num_rows)
    work = f"continue at {len(repeated)} places of {table.num_rows:,} CSV rows"
    most = max(repeated)
    return [Row("cursor", work, f"at most {most:,} rows again", f"a source chunk: {chunk:,} rows", most / chunk, 1, "at most")]


def ranks(*, small: bool) -> list[Row]:
    """Change from 2 to 4 ranks at 90 % of an epoch of written, shuffled rows, and compare the first batches."""
    count = 20_000 if small else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        fp.write(fp.from_table(pa.table({"x": np.arange(count), "y": np.random.default_rng(0).random(count)})), folder)
        rows = fp.pipe(fp.read_arrow(folder), fp.shuffle(seed=0))

        def batches(ranks: int) -> Any:
            return fp.pipe(rows, fp.shard(ranks - 1, ranks), fp.batch(_GLOBAL // ranks))

        stop = count * 9 // 10 // _GLOBAL
        _, cursor = next(islice(fp.iterate(batches(2)), stop, None))
        expected = next(islice(batches(4), stop + 1, None))
        changed, first = batches(4), batches(4)
        assert next(fp.iterate(changed, cursor))[0].column("x") == expected.column("x")
        continued, begun = medians([lambda: next(fp.iterate(changed, cursor)), lambda: next(fp.iterate(first))], repeats=101)
    work = f"first batch on 4 ranks after 2, at 90 % of {count:,} shuffled rows"
    return [
        Row("elastic", work, f"{continued * 1e6:.0f} us", f"first of an epoch: {begun * 1e6:.0f} us", continued / begun, 1.3, "at most")
    ]


def _grown(row: Any) -> bool:
    return bool(row["age"] > 5)
