"""Law of pipelines: a new process gives the same items.

The items must not depend on Python's hash seed, or on values that are stored only in the memory of the old process.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from mlxfp.core.arrow.named_arrays import named_arrays
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import iterate
from mlxfp.data.running.processes import dumps
from mlxfp.support.errors import MissingFileError
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.datasets import collect

__tracebackhide__ = True

_CHILD = "import sys; sys.path[:] = {path!r}; from mlxfp.testing.laws import processes; processes.answer()"
_NOT_LOADED = "not loaded"  # reply of the new process if a module or a file of a dataset is missing there


def assert_same_in_new_process(datasets: Sequence[Dataset[Any]], *, epoch: int = 0) -> None:
    """Check that a new process, with another hash seed, gives the same items, from the middle of a run and from its start.

    Two mistakes break the law:

    - A function uses `hash` of a text, or the order of a set of texts. Both differ between processes.
    - A function assigns numbers to values in the order of their first occurrence. The numbers then depend on the rows that the process has
      read before. To find this mistake, the new process reads the datasets in reverse order.

    The law checks nothing if the new process cannot import a function of a dataset, or if a dataset reads files that exist only in the
    memory of this process. With cloudpickle installed, functions of scripts and notebooks are checked as well.

    >>> import mlxfp as fp
    >>> assert_same_in_new_process([fp.from_examples([{"x": 1}, {"x": 2}])])
    """
    expected, cases = [], []
    for dataset in datasets:
        cursors = [cursor for _, cursor in iterate(dataset, epoch=epoch)]
        middle = len(cursors) // 2
        expected.append(_collected(dataset, None, epoch))
        cases.append((dataset, cursors[middle - 1].to_bytes() if middle else None, middle))
    message = (
        pickle.dumps((epoch, cases[::-1])) if find_spec("cloudpickle") is None else dumps((epoch, cases[::-1]), lambda value: None, None)
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    command = [sys.executable, "-c", _CHILD.format(path=sys.path)]
    finished = subprocess.run(command, input=message, env=environment, capture_output=True, check=False)  # noqa: S603  # this interpreter
    assert finished.returncode == 0, f"{datasets[0]!r} runs in a new process, but that raises {finished.stderr.decode()[-500:].strip()}"
    answers = pickle.loads(finished.stdout)  # noqa: S301  # trusted bytes
    if answers == _NOT_LOADED:
        return
    for (dataset, _, middle), whole, (rest, second) in zip(cases, expected, answers[::-1], strict=True):
        claim = f"{dataset!r} gives the same in a new process, where hash() of texts and values of earlier calls differ"
        assert_same(rest, whole[middle:] if isinstance(whole, list) else whole.slice(middle), f"{claim}, from item {middle} on")
        assert_same(second, whole, claim)


def answer() -> None:
    """Read datasets from the standard input, and write their items to the standard output. A new Python process calls this function.

    For each dataset, the output holds the items after a cursor, and the items of the whole epoch.
    """
    output, sys.stdout = sys.stdout.buffer, sys.stderr  # Functions of users may print, so the standard output is replaced.
    try:
        epoch, cases = pickle.loads(sys.stdin.buffer.read())  # noqa: S301  # trusted bytes
    except (ImportError, AttributeError):
        output.write(pickle.dumps(_NOT_LOADED))
        return
    answers = []
    try:
        for dataset, data, _ in cases:
            cursor = None if data is None else Cursor.from_bytes(data)
            answers.append([_collected(dataset, position, epoch) for position in (cursor, None)])
    except MissingFileError:  # a file with a memory:// path exists only in the process that wrote the file
        output.write(pickle.dumps(_NOT_LOADED))
        return
    output.write(pickle.dumps(answers))


def _collected(dataset: Dataset[Any], cursor: Cursor | None, epoch: int) -> Any:
    """Return all items after a cursor. The arrays of batches are converted to numpy, because MLX arrays cannot be pickled."""
    items = collect(dataset, cursor, epoch=epoch)
    return [named_arrays(batch) for batch in items] if dataset.level == "batches" else items
