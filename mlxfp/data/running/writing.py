"""`write`: data that is computed once, in files with a manifest.

Where no stage has a state, files are cut by rows of the source, so that any worker can make any file, and otherwise by the rows that come
out, in order. What is known of a file is kept until all are done, so a run that was killed goes on with those that are missing.
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
from mlxfp.support.checks import check_choice, check_positive, check_types, explain_call
from mlxfp.support.errors import DataError, PipelineError
from mlxfp.support.progress import Progress

T = TypeVar("T")
AsChunks = Callable[[Iterator[tuple[Any, Cursor]]], Iterator[tuple[RecordBatch, Cursor]]]

_BYTES = 1 << 26  # of the rows of a file, unless a user says how many there are
_LOOKED_AT, _FEWEST, _MOST = 64, 1024, 1 << 20  # rows of a file


@explain_call
def write(
    dataset: Dataset[Any],
    folder: str | os.PathLike[str],
    *,
    format: Literal["arrow", "parquet", "jsonl"] = "arrow",
    rows_per_file: int | None = None,
    on: Runner | None = None,
) -> Manifest:
    """Compute the rows of epoch 0 once, and write them into files in `folder`, with a manifest. Returns the manifest.

    `read_arrow(folder)`, `read_parquet(folder)` or `read_jsonl(folder)` reads them in their order, and checks that all are there. Where no
    stage has a state, the workers of `on` (`runners.threads(n)`, `runners.processes(n)`; by default the thread that calls) write the files,
    each with what comes out of `rows_per_file` rows of the source (None: as many as are about 64 MB). Where one has (`pack`, `windows`, a
    `shuffle` with a buffer, `on_error`), the workers do the work of the stages without a state, and files of exactly `rows_per_file` rows
    are written in order by the thread that calls. After `batch`, the rows are written group after group.

    A call that was killed goes on when it is made again, on any runner: the bytes of every file and of the manifest are the same. If all
    was written, it reads the files, makes those again that are damaged, and returns. While one call writes, others on its folder wait.
    Rows that `on_error` left out are in the manifest. Raises `ArgumentError` where the folder has other files, or data of another
    pipeline or of files that have changed, `PipelineError` after `collate`, for data without an end, and where what `on_error` left out
    cannot be listed, and `FingerprintError` if a function before it has no stable content.

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
    check_choice(tuple(FORMATS), format=format)
    if rows_per_file is not None:
        check_positive(rows_per_file=rows_per_file)
    if on is not None:
        check_types(Runner, on=on)
    if dataset.level == "batches":
        raise PipelineError(f"write takes rows, got batches from {dataset.parts[-1]!r}. Put collate behind read_{format}, or use cache.")
    check_ends(dataset, "write")
    if skips_rows(dataset) and not lists_all(dataset):
        raise PipelineError(
            "write lists the rows that on_error leaves out, and load, cache, a shuffle in memory, concat, interleave and mix keep nothing "
            f"of those left out before them: got {dataset!r}. Put on_error behind them; it works on everything before it."
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
        return manifest  # also in a read-only folder
    with out.alone(), closing(runner.open()) as pool:
        return out.begin_whole() or _write(dataset, out, pool)


def _write(dataset: Dataset[Any], out: WrittenFolder, pool: Pool) -> Manifest:
    if keeps_no_state(dataset):
        with suppress(KeptError):
            return out.finish(_in_tasks(dataset, out, pool))
        out.start_over()
    return _in_order(dataset, out, pool)


def _in_order(dataset: Dataset[Any], out: WrittenFolder, pool: Pool) -> Manifest:
    """Write files one after the other; workers do the work of stages without a state."""
    token = RUNNER.set(None if pool.kind == "inline" else pool)
    try:
        files, end = write_in_order(dataset, out)
    finally:
        RUNNER.reset(token)
    return out.finish(files, skipped_rows(dataset, end) if skips_rows(dataset) else ())


@define
class _Together:
    """The work of one of several ranks. Rank 0 holds the lock of the folder for all, and writes the manifest."""

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
        return self._seen(manifest)

    def _seen(self, found: T | None) -> T:
        """Return the result of rank 0, or raise an error if this rank's folder lacks it."""
        if found is None:
            raise DataError(
                f"Rank 0 writes into the folder, and this one, rank {self.ranks.rank}, does not see its files in {self.out.folder}. Give a "
                "folder that all machines share."
            )
        return found

    def _begin(self) -> float:
        """Return 1 where all is written."""
        if self.ranks.rank == 0:
            self.ranks.held.enter_context(self.out.alone())
            self.manifest = self.out.begin_whole()
        return float(self.manifest is not None)

    def _write_own(self) -> float:
        """Return how many files there are, and one more; 0 where a stage has kept something."""
        self._seen(self.out.progress.is_dir() or None)
        try:
            return 1.0 + _in_tasks(self.dataset, self.out, self.ranks, own=lambda place: place % self.ranks.size == self.ranks.rank)
        except KeptError:
            return 0.0

    def _end(self, files: int, *, start_over: bool) -> float:
        if self.ranks.rank == 0:
            if start_over:
                self.out.start_over()
            self.manifest = self.out.finish(files) if files >= 0 else _in_order(self.dataset, self.out, self.ranks)
        return 0.0


def keeps_no_state(dataset: Dataset[Any]) -> bool:
    """Return true if no stage keeps rows between chunks: then any worker can write any file."""
    if skips_rows(dataset):  # also in a child dataset: the list of skipped rows needs a run in order
        return False
    return not dataset.plan.stages and not dataset.plan.groups


def rows_of_a_file(dataset: Dataset[Any]) -> int:
    """Return how many rows are about `_BYTES`, as the first rows of the source tell."""
    first = next(iter(dataset.planned_calls.head()), None)
    if first is None or not first.num_rows:
        return _MOST
    some = first.slice(0, _LOOKED_AT)
    fitting: int = 8 * _BYTES * some.num_rows // max(1, content_bits(some))
    return max(_FEWEST, min(_MOST, fitting))


def _in_tasks(dataset: Dataset[Any], out: WrittenFolder, pool: Pool, own: Callable[[int], bool] = lambda place: True) -> int:
    """Let workers write the files, those of `own` places; return how many there are in all."""
    files, known, kept = 0, 0, False

    def total() -> int | None:
        return None if known else dataset.plan.source.length()

    def jobs() -> Jobs:
        nonlocal files, known
        for place, job in _jobs(dataset, out, pool, own):
            if kept:
                return
            files, known = max(files, place + 1), known + (job is None)
            if job is not None:
                yield job, None

    with Progress(out.writer, total=total) as progress, closing(pool.map(jobs(), whole=True)) as results:
        for (job, _), result in results:
            complete = result.complete if result.error is None else job.run().complete  # raises the error as it is without workers
            kept = kept or not complete
            progress.update(job.task.rows)
    if kept:
        raise KeptError
    return files


def _jobs(dataset: Dataset[Any], out: WrittenFolder, pool: Pool, own: Callable[[int], bool]) -> Iterator["tuple[int, WriteFile | None]"]:
    """Yield the place of each file with its job, or None where it is done or not our own: what is known of it says where the next begins.

    Files that are done are read last, by workers too; those that are damaged come again, with a job.
    """
    segment, start = Segment(dataset.plan.segment, dataset.hooks), beginning(dataset)

    def job(place: int, jobs: tuple[Job, ...], after: Cursor) -> WriteFile:
        tasks, first = TaskSequence(tuple(job.task for job in jobs)), jobs[0].first if jobs else 0
        return WriteFile(tasks, 0, first, segment, out=out, place=place, after=after.to_bytes())

    done, files = [], _files(dataset, start, out.rows_per_file)
    for place in count():
        file, after = out.noted(place)
        if file is not None and after is not None:
            done.append((place, start, file))
            start, files = after, _files(dataset, after, out.rows_per_file)
            yield place, None
            continue
        jobs, after = next(files, ((), start))
        if not jobs and place:
            break
        yield place, job(place, jobs, after) if own(place) and out.known(place)[0] is None else None
        start = after
    checks = [CheckFile(TaskSequence(()), 0, 0, segment, out=out, file=file) for place, _, file in done if own(place)]
    starts = [(place, start) for place, start, _ in done if own(place)]
    for (place, start), whole in zip(starts, _are_whole(checks, pool), strict=True):
        if not whole:
            yield place, job(place, *next(_files(dataset, start, out.rows_per_file), ((), start)))


def _are_whole(checks: Iterable[CheckFile], pool: Pool) -> Iterator[bool]:
    """Let workers read files that are done; yield, in their order, whether each is as it was written."""
    with closing(pool.map(((check, None) for check in checks), whole=True)) as results:
        for (check, _), result in results:
            yield result.complete if result.error is None else check.run().complete


def _files(dataset: Dataset[Any], start: Cursor, size: int) -> Iterator[tuple[tuple[Job, ...], Cursor]]:
    """Yield the jobs of each file, of `size` rows of the source, and the cursor after the file."""
    for _, pairs in groupby(row_jobs(dataset, start, size), lambda pair: pair[0].first // size):
        jobs, cursors = zip(*pairs, strict=True)
        yield jobs, cursors[-1]


def write_in_order(dataset: Dataset[Any], out: WrittenFolder, as_chunks: AsChunks = identity) -> tuple[int, Cursor]:
    """Write the files one after the other; return how many there are, and the cursor at the end. `as_chunks` makes chunks of batches."""
    place, cursor = 0, beginning(dataset)
    while out.known(place)[0] is not None:
        place += 1
    if place and (after := out.known(place - 1)[1]) is not None:
        cursor = after
    else:
        place = 0  # what comes after a file that was damaged is made again, and written where it is not there
    progress = progress_of(dataset, out.writer, epochs=0 if place else 1)
    with closing(run(dataset, cursor)) as items, progress:
        rows = _Rows(as_chunks(items), cursor, whole=dataset.level != "examples")
        while rows.more() or not place:
            chunks = progress.over(rows.take(out.rows_per_file))
            if out.known(place)[0] is None:
                out.write_file(place, chunks, rows.cursor_bytes)
            else:
                deque(chunks, maxlen=0)
            out.forget_cursor(place - 1)  # it may hold the rows of a buffer
            place += 1
        return place, rows.cursor


class _Rows:
    """The chunks of a run, to be taken row by row; or whole, where they are groups."""

    def __init__(self, items: Iterator[tuple[Any, Cursor]], cursor: Cursor, *, whole: bool) -> None:
        self.cursor = cursor  # after what was taken last
        self._items, self._whole, self._held = items, whole, deque[tuple[RecordBatch, Cursor]]()

    def cursor_bytes(self) -> bytes:
        """Write the cursor."""
        return self.cursor.to_bytes()

    def more(self) -> bool:
        """Whether there are rows left."""
        if not self._held:
            self._held.extend(islice(self._items, 1))
        return bool(self._held)

    def take(self, rows: int) -> Iterator[RecordBatch]:
        """Yield chunks of so many rows in all, unless there are fewer left."""
        while rows > 0 and self.more():
            chunk, after = self._held.popleft()
            left = 0 if self._whole else max(0, chunk.num_rows - rows)
            taken = chunk.num_rows - left
            if left:
                self._held.append((chunk.slice(taken), after))
            rows, self.cursor = rows - taken, after.back(left)
            yield chunk.slice(0, taken)
