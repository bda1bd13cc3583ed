"""Limits of the system on open files and processes: workers that cannot start raise an error and do not hang."""

import subprocess
import sys

import pytest

_PROGRAM = """
import os
import resource

import mlxfp as fp

rows = fp.from_examples([{"x": number} for number in range(2000)])
data = fp.pipe(rows, fp.map(lambda row: {"x": row["x"] + 1}), fp.prefetch(2, **%r))
if %r:  # root has no limit of processes
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
else:
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
try:
    print(sum(1 for _ in data))
except fp.errors.WorkerError as error:
    print(error)
"""


def run(arguments, *, processes):
    """Run a pipeline in a process with limits, and return its output."""
    command = [sys.executable, "-c", _PROGRAM % (arguments, processes)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.parametrize("workers", [1, 2])
def test_a_refused_thread_is_an_error(workers):
    """The error has the limits and the commands that raise the limits."""
    output = run({"workers": workers}, processes=True)
    assert output.startswith(f"A worker thread cannot start: can't start new thread, got workers={workers} with limits of ")
    assert "and 1 processes. Use fewer workers, as in prefetch(2, workers=2), or raise the limits" in output
    assert "ulimit -n 1024 for files, ulimit -u 4096 for processes." in output


@pytest.mark.parametrize("workers", [12, 30])
def test_processes_beyond_the_limit_of_open_files_are_an_error(workers):
    """Each process needs open files in this process."""
    output = run({"workers": workers, "kind": "processes"}, processes=False)
    assert output.startswith(f"A worker process cannot start: [Errno 24] Too many open files, got workers={workers} with limits of 20 open")


def test_threads_need_no_files():
    """A limit of open files does not matter for threads."""
    assert run({"workers": 30}, processes=False) == "2000\n"
