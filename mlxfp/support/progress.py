"""Progress of work longer than two seconds. Terminals and notebooks show a tqdm bar. Logs of commands contain lines of progress.

Only the main thread of the main process shows progress. Worker processes and all ranks except the first show nothing.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from threading import RLock, current_thread, main_thread
from time import time
from typing import Any, Self, TextIO

from mlxfp.support.terminal import one_line

SETTING = "MLXFP_PROGRESS"  # environment variable; 0: no progress; 1: log lines if there is no terminal or notebook
_LINES: ContextVar[bool] = ContextVar("_LINES", default=False)  # True while an mlxfp command runs, so that progress becomes log lines

_DELAY = 2.0  # seconds of work before a bar appears
_LINE = 30.0  # seconds between two log lines
_RANKS = ("MLX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")  # environment variables with the rank of this process, set by mlx.launch or MPI


@contextmanager
def lines_in_logs() -> Iterator[None]:
    """Write progress as log lines inside a `with` block, unless there is a terminal or notebook. MLXFP_PROGRESS=0 turns progress off."""
    token = _LINES.set(True)
    try:
        yield
    finally:
        _LINES.reset(token)


def progress_file(file: TextIO | None = None, *, lines: bool = False) -> TextIO | None:
    """Return the stream for progress messages: `file` or standard error. Return None if no progress is shown.

    `lines=True` also allows log lines in a stream that is neither a terminal nor the output of a notebook.
    """
    setting = os.environ.get(SETTING, "")
    out = file or sys.stderr
    if out is None or out.closed or (file is None and setting == "0"):  # a program without a console has no standard error
        return None
    return out if is_live(out) or lines or _LINES.get() or setting not in ("", "0") else None


def is_live(file: TextIO) -> bool:
    """Return True if the file is a terminal or the output of a notebook."""
    return type(file).__module__.startswith("ipykernel") or file.isatty()


@cache
def bar_class() -> Any:
    """Return the bar class of tqdm. The import is lazy, because importing tqdm takes as long as importing the core."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm warns if ipywidgets is missing, and then draws bars as text
        from tqdm.auto import tqdm

    bar: Any = type("Bar", (tqdm,), {"monitor_interval": 0})  # interval 0 disables the thread that redraws bars
    bar.set_lock(RLock())  # the default lock of tqdm would set the multiprocessing start method of the whole program
    return bar


def write_line(file: TextIO, text: str) -> None:
    """Write a line above the progress bars in the stream `file`. Ignore errors of a closed stream or an unsupported character."""
    with suppress(OSError, ValueError):
        bar_class().write(one_line(text), file=file)
        file.flush()


class Progress:
    """A counter of finished work, used as a context manager. Shows a progress bar on a terminal, and writes lines to a log file."""

    def __init__(
        self, text: str, *, unit: str = "rows", total: Callable[[], int | None] = lambda: None, done: int = 0, lines: bool = False
    ) -> None:
        """Create a counter that begins at `done`. Before the first display, the function `total` returns the total amount of work, or None.

        `lines=True` writes log lines in place of a bar, also on terminals.
        """
        self._facts: dict[str, Any] = {"initial": done, "unit": f" {unit}", "unit_scale": unit == "rows"}
        self._text, self._total, self._count, self._written = one_line(text), total, done, -1
        self._file = progress_file() if _is_first() else None
        self._lines = self._file is None or lines or not is_live(self._file)
        self._bar: Any = None
        self._begin = time()
        self._next = self._begin + _DELAY

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._bar is not None:
            self._bar.close()
        if kind is None and self._written not in (-1, self._count):
            self._write(time())

    def update(self, count: int = 1) -> None:
        """Add finished work. Call this method once per chunk, not once per row."""
        self._count += count
        now = time()
        if self._file is None or now < self._next:
            return
        if "total" not in self._facts:
            self._facts["total"] = None
            with suppress(Exception):  # ignore an error of `total`, because reading the data later raises the same error
                self._facts["total"] = self._total()
        if self._lines:
            self._write(now)
            self._next = now + _LINE
        else:
            self._draw()

    def over(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items and count them as finished work. If the unit is rows, count the rows of each item."""
        for item in items:
            yield item
            self.update(item.num_rows if self._facts["unit_scale"] else 1)

    def rename(self, text: str) -> None:
        """Change the text of the progress bar."""
        self._text = one_line(text)
        if self._bar is not None:
            self._bar.set_description(self._text)

    def _draw(self) -> None:
        if self._bar is None:
            bar = bar_class()(desc=self._text, file=self._file, leave=False, dynamic_ncols=True, miniters=1, delay=_DELAY, **self._facts)
            bar.start_t = bar.last_print_t = self._begin  # tqdm shows the bar `_DELAY` seconds after the work started
            self._bar = bar
        self._bar.update(self._count - self._bar.n)

    def _write(self, now: float) -> None:
        assert self._file is not None
        text = bar_class().format_meter(self._count, elapsed=now - self._begin, ncols=0, prefix=self._text, **self._facts)
        write_line(self._file, text.replace("s/ ", "s/"))
        self._written = self._count


def _is_first() -> bool:
    """Return True in the main thread of the main process. Worker processes and ranks other than rank 0 return False."""
    processes: Any = sys.modules.get("multiprocessing.process")
    is_worker = processes is not None and processes.parent_process() is not None
    return current_thread() is main_thread() and not is_worker and all(os.environ.get(name, "0") == "0" for name in _RANKS)
