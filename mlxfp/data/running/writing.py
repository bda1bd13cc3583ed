"""Function `write`, which computes the rows of a pipeline once and stores them in files with a manifest.

If no stage has a state, each file holds the output of some source rows, and any worker can write any file. Otherwise, each file holds a
fixed number of output rows, and the files are written in order. `write` stores an entry for each finished file, so a killed run continues
with the missing files.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import count, groupby, islice
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from attrs import define
from toolz import identity

from mlxfp.core.arrow.content import content_bits
from mlxfp.core.chunks import RecordBatch
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import schema
from mlxfp.core.execution import beginning, progress_of, row_jobs, run
from mlxfp.core.identity import fingerprint
from mlxfp.core.nodes import check_dataset
from mlxfp.core.running.runners import RUNNER, Jobs
from mlxfp.core.running.segments import Job, Segment
from mlxfp.core.sources import check_ends
from mlxfp.data.manifests import Manifest
from mlxfp.data.running.error_rows import lists_all, skipped_rows, skips_rows
from mlxfp.data.running.file_jobs import CheckFile, KeptError, TaskSequence, WriteFile
from mlxfp.data.running.part_files import FORMATS
from mlxfp.data.running.pools import Pool
from mlxfp.data.running.rank_pools import RankPool
from mlxfp.data.running.runners import RANKS, Runner, inline
from mlxfp.data.running.written_folders import WrittenFolder
from mlxfp.support.checks import check_choice, check_positive, check_types, check_utf8, explain_call, not_none
from mlxfp.support.errors import ArgumentError, DataError, PipelineError
from mlxfp.support.progress import Progress

T = TypeVar("T")
AsChunks = Callable[[Iterator[tuple[Any, Cursor]]], Iterator[tuple[RecordBatch, Cursor]]]

_BYTES = 1 << 26  # target size of a file in bytes, if `rows_per_file` is None
_LOOKED_AT, _MOST = 64, 1 << 20  # `_LOOKED_AT` rows are sampled to estimate the row size. A file has at most `_MOST` rows.


@explain_call
def write(
    dataset: Dataset[Any],
    folder: str | os.PathLike[str],
    *,
    format: Literal["arrow", "parquet", "jsonl"] = "arrow",
    rows_per_file: int | None = None,
    on: Runner | None = None,
) -> Manifest:
    """Write the rows of epoch 0 into files in `folder`, with a manifest. Return the manifest.

    Read the data with `read_arrow(folder)`, `read_parquet(folder)` or `read_jsonl(folder)`, which keep the order and check that all files
    exist. After `batch`, the files contain the single rows of the groups. The manifest lists rows skipped by `on_error`.

    The argument `on` selects the workers: `runners.threads(n)`, `runners.processes(n)` or, by default, the calling thread.

    - If no stage keeps a state between rows, the workers write the files. Each file contains the results of `rows_per_file` source rows.
      The default gives files of about 64 MB.
    - If a stage keeps a state (`pack`, `windows`, `shuffle` with a buffer, `on_error`), workers run only the other stages. The calling
      thread writes the files in order. Each file except the last has exactly `rows_per_file` rows.

    If a call is killed, call `write` again to continue. The argument `on` may differ. All files and the manifest then have the same bytes
    as without the kill. A repeated call for complete data checks the files and rewrites damaged files. If several calls write to the same
    folder, one call writes while the others wait.

    Raises `ArgumentError` if the folder contains other files, or data of another pipeline or of changed source files. Raises
    `PipelineError` after `collate`, for an endless dataset, and if the rows skipped by `on_error` cannot be listed. Raises
    `FingerprintError` for an earlier function without stable content.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> even = fp.pipe(fp.from_examples([{"x": i} for i in range(9)]), fp.filter(lambda row: row["x"] % 2 == 0))
    >>> with TemporaryDirectory() as folder:
    ...     manifest = fp.write(even, folder, rows_per_file=4)
    ...     [(each.name, each.rows) for each in manifest.files]
    [('part-00000.arrow', 2), ('part-00001.arrow', 2), ('part-00002.arrow', 1)]

    See also: `cache`, which a pipeline reads on from; `to_table`.
    """
    check_dataset(dataset, write)
    check_types((str, os.PathLike), folder=folder)
    check_utf8(folder, "folder")
    if Path(folder).suffix[1:] in FORMATS:
        raise ArgumentError(
            f"The argument folder of write must name a folder, got a file name: {os.fspath(folder)!r}. Give a folder and a format: "
            f"write(rows, {str(Path(folder).with_suffix(''))!r}, format={Path(folder).suffix[1:]!r})."
        )
    check_choice(tuple(FORMATS), format=format)
    check_positive(**not_none(rows_per_file=rows_per_file))
    check_types(Runner, **not_none(on=on))
    if dataset.level == "batches":
        raise PipelineError(
            f"write takes rows, got batches from {dataset.parts[-1]!r}. Put collate after read_{format}, in the pipeline that reads the "
            "files. To store batches, use cache."
        )
    check_ends(dataset, "write")
    if skips_rows(dataset) and not lists_all(dataset):
        raise PipelineError(
            "write lists the rows skipped by on_error, but load, cache, a shuffle in memory, concat, interleave and mix drop this list: "
            f"got {dataset!r}. Put on_error after these stages: on_error also skips rows that failed in earlier stages."
        )
    out = WrittenFolder(
        Path(folder).expanduser(),
        FORMATS[format],
        rows_per_file or rows_of_a_file(dataset),
        schema(dataset),
        tuple(text for text, _ in dataset.identity),
        fingerprint((dataset, dataset.source.version(), format, rows_per_file)),
    )
    runner = on or inline()
    if runner.name == RANKS:
        with closing(runner.open()) as ranks:
            return _Together(dataset, out, cast("RankPool", ranks)).write()
    if (manifest := out.written()) is not None and not manifest.damaged():
        out.clear_lock()
        return manifest  # All files exist. No lock is needed, so a read-only folder works too.
    with out.alone(), closing(runner.open()) as pool:
        return out.begin_whole() or _write(dataset, out, pool)


def _write(dataset: Dataset[Any], out: WrittenFolder, pool: Pool) -> Manifest:
    if keeps_no_state(dataset):
        with suppress(KeptError):
            return out.finish(_in_tasks(dataset, out, pool))
        out.start_over()
    return _in_order(dataset, out, pool)


def _in_order(dataset: Dataset[Any], out: WrittenFolder, pool: Pool) -> Manifest:
    """Write files in order in this thread, while workers run the stateless stages."""
    token = RUNNER.set(None if pool.kind == "inline" else pool)
    try:
        files, end = write_in_order(dataset, out)
    finally:
        RUNNER.reset(token)
    return out.finish(files, skipped_rows(dataset, end) if skips_rows(dataset) else ())


@define
class _Together:
    """Writer for one of several ranks. Rank 0 holds the lock of the folder and writes the manifest."""

    dataset: Dataset[Any]
    out: WrittenFolder
    ranks: RankPool
    manifest: Manifest | None = None

    def write(self) -> Manifest:
        self.ranks.check_same(self.out.fingerprint)
        divided = keeps_no_state(self.dataset)
        if not any(self.ranks.meet(self._begin)):
            files = min(self.ranks.meet(self._write_own)) if divided else 0
            self.ranks.meet(partial(self._end, int(files) - 1, start_over=divided and not files))
        manifest = self.manifest or self.out.written()
        return self._visible(manifest)

    def _visible(self, value: T | None) -> T:
        """Return `value`. If `value` is None, raise `DataError`: this rank does not see the files that rank 0 writes."""
        if value is None:
            raise DataError(
                f"Rank {self.ranks.rank} does not see the files that rank 0 writes to {self.out.folder}. "
                "Use a folder that all machines share."
            )
        return value

    def _begin(self) -> float:
        """Return 1 if all files are already written, otherwise 0."""
        if self.ranks.rank == 0:
            self.ranks.held.enter_context(self.out.alone())
            self.manifest = self.out.begin_whole()
        return float(self.manifest is not None)

    def _write_own(self) -> float:
        """Write the files of this rank. Return 1 + n, if all ranks together write n files.

        Returns 0 if a stage keeps rows between chunks. Rank 0 must then write all files.
        """
        self._visible(self.out.progress.is_dir() or None)
        try:
            return 1.0 + _in_tasks(self.dataset, self.out, self.ranks, selected=lambda index: index % self.ranks.size == self.ranks.rank)
        except KeptError:
            return 0.0

    def _end(self, files: int, *, start_over: bool) -> float:
        if self.ranks.rank == 0:
            if start_over:
                self.out.start_over()
            self.manifest = self.out.finish(files) if files >= 0 else _in_order(self.dataset, self.out, self.ranks)
        return 0.0


def keeps_no_state(dataset: Dataset[Any]) -> bool:
    """Return True if no stage keeps rows between chunks. Any worker can then write any file."""
    if skips_rows(dataset):  # `on_error` lists skipped rows, so one process must process all rows in order.
        return False
    return not dataset.plan.stages and not dataset.plan.groups


def rows_of_a_file(dataset: Dataset[Any]) -> int:
    """Return the number of rows for a file of about 64 MB, estimated from the first source rows."""
    first = next(iter(dataset.planned_calls.head()), None)
    if first is None or not first.num_rows:
        return _MOST
    some = first.slice(0, _LOOKED_AT)
    fitting: int = 8 * _BYTES * some.num_rows // max(1, content_bits(some))
    return max(1, min(_MOST, fitting))


def _in_tasks(dataset: Dataset[Any], out: WrittenFolder, pool: Pool, selected: Callable[[int], bool] = lambda index: True) -> int:
    """Let workers write the files for which `selected(index)` is True. Return the total number of files."""
    files, known, kept = 0, 0, False

    def total() -> int | None:
        return None if known else dataset.plan.source.length()

    def jobs() -> Jobs:
        nonlocal files, known
        for index, job in _jobs(dataset, out, pool, selected):
            if kept:
                return
            files, known = max(files, index + 1), known + (job is None)
            if job is not None:
                yield job, None

    with Progress(out.writer, total=total) as progress, closing(pool.map(jobs(), whole=True)) as results:
        for (job, _), result in results:
            # Repeat a failed job in this process, to raise the original error.
            complete = result.complete if result.error is None else job.run().complete
            kept = kept or not complete
            progress.update(job.task.rows)
    if kept:
        raise KeptError
    return files


def _jobs(
    dataset: Dataset[Any], out: WrittenFolder, pool: Pool, selected: Callable[[int], bool]
) -> Iterator["tuple[int, WriteFile | None]"]:
    """Yield the index of each file, with the job that writes the file. The job is None for finished files and for files of other ranks.

    The progress entry of a finished file holds the cursor at which the next file starts. Finished files are checked after the last index.
    Each damaged file is then yielded a second time, with a job.
    """
    segment, start = Segment(dataset.plan.segment, dataset.hooks), beginning(dataset)

    def job(index: int, jobs: tuple[Job, ...], after: Cursor) -> WriteFile:
        tasks, first = TaskSequence(tuple(job.task for job in jobs)), jobs[0].first if jobs else 0
        return WriteFile(tasks, 0, first, segment, out=out, index=index, after=after.to_bytes())

    done, files = [], _files(dataset, start, out.rows_per_file)
    for index in count():
        file, after = out.noted(index)
        if file is not None and after is not None:
            done.append((index, start, file))
            start, files = after, _files(dataset, after, out.rows_per_file)
            yield index, None
            continue
        jobs, after = next(files, ((), start))
        if not jobs and index:
            break
        yield index, job(index, jobs, after) if selected(index) and out.known(index)[0] is None else None
        start = after
    checks = [CheckFile(TaskSequence(()), 0, 0, segment, out=out, file=file) for index, _, file in done if selected(index)]
    starts = [(index, start) for index, start, _ in done if selected(index)]
    for (index, start), whole in zip(starts, _are_whole(checks, pool), strict=True):
        if not whole:
            yield index, job(index, *next(_files(dataset, start, out.rows_per_file), ((), start)))


def _are_whole(checks: Iterable[CheckFile], pool: Pool) -> Iterator[bool]:
    """Read finished files in worker processes. Yield True for an undamaged file and False for a damaged file, in the order of the files."""
    with closing(pool.map(((check, None) for check in checks), whole=True)) as results:
        for (check, _), result in results:
            yield result.complete if result.error is None else check.run().complete


def _files(dataset: Dataset[Any], start: Cursor, size: int) -> Iterator[tuple[tuple[Job, ...], Cursor]]:
    """Yield for each file the jobs that compute the file, and the cursor at its end. A file holds the results of `size` source rows."""
    for _, pairs in groupby(row_jobs(dataset, start, size), lambda pair: pair[0].first // size):
        jobs, cursors = zip(*pairs, strict=True)
        yield jobs, cursors[-1]


def write_in_order(dataset: Dataset[Any], out: WrittenFolder, as_chunks: AsChunks = identity) -> tuple[int, Cursor]:
    """Write all items to numbered files. Return the number of files and the final cursor. `as_chunks` converts items to chunks of rows."""
    index, cursor = 0, beginning(dataset)
    while out.known(index)[0] is not None:
        index += 1
    if index and (after := out.known(index - 1)[1]) is not None:
        cursor = after
    else:
        index = 0  # All rows are computed again from the start, but undamaged files are not written again.
    progress = progress_of(dataset, out.writer, epochs=0 if index else 1)
    with closing(run(dataset, cursor)) as items, progress:
        rows = _Rows(as_chunks(items), cursor, whole=dataset.level != "examples")
        while rows.more() or not index:
            chunks = progress.over(rows.take(out.rows_per_file))
            if out.known(index)[0] is None:
                out.write_file(index, chunks, rows.cursor_bytes)
            else:
                deque(chunks, maxlen=0)
            out.forget_cursor(index - 1)  # Remove old cursors to save space, because a cursor may contain the rows of a shuffle buffer.
            index += 1
        return index, rows.cursor


class _Rows:
    """Reader that takes a given number of rows from a running pipeline. Groups of rows are never split."""

    def __init__(self, items: Iterator[tuple[Any, Cursor]], cursor: Cursor, *, whole: bool) -> None:
        self.cursor = cursor  # cursor after the rows read so far
        self._items, self._whole, self._buffered = items, whole, deque[tuple[RecordBatch, Cursor]]()

    def cursor_bytes(self) -> bytes:
        """Return the cursor as bytes."""
        return self.cursor.to_bytes()

    def more(self) -> bool:
        """Return True if rows remain."""
        if not self._buffered:
            self._buffered.extend(islice(self._items, 1))
        return bool(self._buffered)

    def take(self, rows: int) -> Iterator[RecordBatch]:
        """Yield chunks with a total of `rows` rows, or fewer at the end."""
        while rows > 0 and self.more():
            chunk, after = self._buffered.popleft()
            remaining = 0 if self._whole else max(0, chunk.num_rows - rows)
            count = chunk.num_rows - remaining
            if remaining:
                self._buffered.append((chunk.slice(count), after))
            rows, self.cursor = rows - count, after.back(remaining)
            yield chunk.slice(0, count)
