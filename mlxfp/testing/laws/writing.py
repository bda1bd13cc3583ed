"""Law of `write`: the bytes of the files do not depend on the runner or on interruptions."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlxfp.core.datasets import Dataset
from mlxfp.data.running.pools import Pool
from mlxfp.data.running.runners import Runner
from mlxfp.data.running.writing import write

__tracebackhide__ = True


class _Stopped(Exception):  # noqa: N818  # an interrupt, not an error
    pass


def assert_written_alike(dataset: Dataset[Any], runner: Runner, *, rows_per_file: int = 10) -> None:
    """Check that `write` makes the same bytes with and without `runner`, even if `write` is stopped after each file and called again.

    >>> import mlxfp as fp
    >>> rows = fp.pipe(fp.from_examples([{"x": i} for i in range(30)]), fp.map(dict))
    >>> assert_written_alike(rows, fp.runners.threads(2))
    """
    with TemporaryDirectory() as folder:
        alone, other, stopped = (Path(folder, name) for name in ("alone", "other", "stopped"))
        files = len(write(dataset, alone, rows_per_file=rows_per_file).files)
        write(dataset, other, rows_per_file=rows_per_file, on=runner)
        _assert_same_files(alone, other, f"{runner!r} and one thread write the same files of {dataset!r}")
        for _ in range(files):
            try:
                write(dataset, stopped, rows_per_file=rows_per_file, on=_stopping(runner))
            except _Stopped:
                continue
            break
        write(dataset, stopped, rows_per_file=rows_per_file)
        _assert_same_files(alone, stopped, f"repeated calls finish an interrupted write of {dataset!r} with {runner!r}")


def _assert_same_files(expected: Path, actual: Path, claim: str) -> None:
    left, right = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (expected, actual))
    assert left.keys() == right.keys(), f"law broken: {claim}: got {sorted(right)} instead of {sorted(left)}"
    for name, data in left.items():
        assert right[name] == data, f"law broken: {claim}: {name} has other bytes"


def _stopping(runner: Runner) -> Runner:
    """Return a runner that runs one job and then raises an interrupt."""

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

        pool.submit = submit_one  # type: ignore[method-assign]  # this pool is not shared
        return pool

    return Runner("stopping", runner.workers, opened)
