"""cursor: the number of rows read again when a run resumes in the middle of a long pipeline. Counted, not timed."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.csv
from attrs import frozen

import mlxfp as fp
from benchmarks.inputs import SENTENCE, passengers
from benchmarks.measuring import Row


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
        chunk, again = max(seen), []
        for cursor, before in read[:: len(read) // 10]:
            seen.clear()
            for _ in fp.iterate(batches, fp.Cursor.from_bytes(cursor.to_bytes())):
                pass
            again.append(before + sum(seen) - table.num_rows)
    work = f"continue at {len(again)} places of {table.num_rows:,} CSV rows"
    return [Row("cursor", work, f"at most {max(again):,} rows again", f"a source chunk: {chunk:,} rows", max(again) / chunk, 1, "at most")]


def _grown(row: Any) -> bool:
    return bool(row["age"] > 5)
