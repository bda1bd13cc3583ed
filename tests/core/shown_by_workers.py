"""A job for another process, in a file that imports little."""

import sys
from pathlib import Path

from mlxfp.core.running import showing
from tests.screens import Terminal


def shown_by_a_worker(path):
    sys.stderr = Terminal()
    now = iter(range(100))
    showing.monotonic = lambda: 3.0 * next(now)
    with showing.Showing("count") as shown:
        for _ in range(5):
            shown.add()
    Path(path).write_text(sys.stderr.getvalue() or "nothing")
