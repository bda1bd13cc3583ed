"""What tests of threads share."""

import subprocess
import sys
import threading
import time
from contextlib import contextmanager


@contextmanager
def no_thread_left():
    """Check that as many threads run afterwards as before: what ends may take a moment to be gone."""
    before = threading.enumerate()
    yield
    deadline = time.monotonic() + 5
    while (left := [thread for thread in threading.enumerate() if thread not in before]) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not left, f"threads that still run: {left}"


def run_script(code):
    """Run Python code in a process of its own; return its exit status, output and errors."""
    found = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, timeout=60)
    return found.returncode, found.stdout, found.stderr
