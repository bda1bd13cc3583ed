"""The law of written data: who writes it, and how often that is interrupted, does not change a byte."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlxfp.core.datasets import Dataset
from mlxfp.data.running.pools import Pool
from mlxfp.data.running.runners import Runner
from mlxfp.data.running.writing import write

__tracebackhide__ = True


class _Stopped(Exception):  # noqa: N818  # as an interrupt, which nothing catches
    pass


def assert_written_alike(dataset: Dataset[Any], runner: Runner, *, rows_per_file: int = 10) -> None:
    """Law: with any runner, and where a call is interrupted after any file and made again, the bytes of all files are the same.

    >>> import mlxfp as fp
    >>> rows = fp.pipe(fp.from_examples([{"x": i} for i in range(30)]), fp.map(dict))
    >>> assert_written_alike(rows, fp.runners.threads(2))
    """
    with TemporaryDirectory() as folder:
        alone, other, stopped = (Path(folder, name) for name in ("alone", "other", "stopped"))
        files = len(write(dataset, alone, rows_per_file=rows_per_file).files)
        write(dataset, other, rows_per_file=rows_per_file, on=runner)
        _assert_same_files(alone, other, f"{runner!r} writes of {dataset!r} what one thread writes")
        for _ in range(files):
            try:
                write(dataset, stopped, rows_per_file=rows_per_file, on=_stopping(runner))
            except _Stopped:
                continue
            break
        write(dataset, stopped, rows_per_file=rows_per_file)
        _assert_same_files(alone, stopped, f"what {runner!r} was interrupted in is finished, for {dataset!r}")


def _assert_same_files(one: Path, other: Path, said: str) -> None:
    left, right = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (one, other))
    assert left.keys() == right.keys(), f"law broken: {said}: got {sorted(right)} instead of {sorted(left)}"
    for name, data in left.items():
        assert right[name] == data, f"law broken: {said}: {name} has other bytes"


def _stopping(runner: Runner) -> Runner:
    """Return a runner that takes one job and is then interrupted."""

    def opened() -> Pool:
        pool = runner.open()
        submit = pool.submit
        jobs: list[Any] = []

        def submit_one(job: Any, unwanted: Any) -> Any:
            if jobs:
                raise _Stopped
            jobs.append(job)
            future = submit(job, unwanted)
            future.result()
            return future

        pool.submit = submit_one  # type: ignore[method-assign]  # a pool of its own
        return pool

    return Runner("stopping", runner.workers, opened)
