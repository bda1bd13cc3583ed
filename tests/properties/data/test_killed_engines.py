"""Servers and clients of Sail that are killed while they write, where Sail is installed: the same bytes at the end."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pysail.spark", reason="Sail is not installed")
pytest.importorskip("pyspark.sql", reason="the client of Spark is not installed")

SERVER = """
import sys, threading
from pysail.spark import SparkConnectServer
server = SparkConnectServer(port=int(sys.argv[1]))
server.start()
print(server.listening_address[1], flush=True)
threading.Event().wait()
"""

WRITES = """
import sys, time
import mlxfp as fp
def slow(row):
    time.sleep(0.001)
    return {"x": row["x"], "text": str(row["x"]) * 3}
def main(folder, port, stateful):
    rows = fp.from_examples([{"x": i} for i in range(800)])
    made = fp.pipe(rows, fp.map(slow), *([fp.shuffle(seed=0, buffer=64)] if stateful else []))
    on = None
    if port:
        from pyspark.sql import SparkSession
        on = fp.runners.spark(SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate(), workers=2)
    print(fp.write(made, folder, rows_per_file=60, on=on).rows, flush=True)
main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True")
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the program that writes: without one, a client of Spark looks for an installation of Spark."""
    path = tmp_path_factory.mktemp("script") / "writes.py"
    path.write_text(WRITES)
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}  # of a process that was killed: it is empty


@contextmanager
def serving(port: str = "0") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server of Sail in a process of its own, in which it also does the work, and its port."""
    with subprocess.Popen([sys.executable, "-c", SERVER, port], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), server
        finally:
            server.kill()


@contextmanager
def writing(command: list[str | Path], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes, when there are two more files than before."""
    before = len(list(folder.glob("part-*.arrow")))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
        try:
            deadline = time.monotonic() + 30
            while client.poll() is None and len(list(folder.glob("part-*.arrow"))) < before + 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            yield client
        finally:
            client.kill()


def test_what_sail_writes_is_the_same_whatever_is_killed(script: Path, tmp_path: Path):
    """A client is killed, then both are, then a server whose client goes on with the next one, as Spark's clients do."""
    folder = tmp_path / "killed"

    def command(folder: Path, port: str) -> list[str | Path]:
        return [sys.executable, script, folder, port, "True"]

    with serving() as (port, server):
        with writing(command(folder, port), folder) as client:
            client.send_signal(signal.SIGKILL)
        assert client.wait() == -signal.SIGKILL
        with writing(command(folder, port), folder) as client:
            server.send_signal(signal.SIGKILL)
            client.send_signal(signal.SIGKILL)
        assert (client.wait(), server.wait()) == (-signal.SIGKILL, -signal.SIGKILL)
    assert not (folder / "manifest.json").exists()
    with serving() as (port, server), writing(command(folder, port), folder) as client:
        server.send_signal(signal.SIGKILL)
        server.wait()
        with serving(port):
            assert client.wait(30) == 0
    subprocess.run(command(tmp_path / "whole", "0"), check=True, stdout=subprocess.DEVNULL)
    assert content(folder) == content(tmp_path / "whole")


def test_what_sail_began_is_written_inline(script: Path, tmp_path: Path):
    folder = tmp_path / "killed"
    with serving() as (port, server), writing([sys.executable, script, folder, port, "False"], folder) as client:
        server.send_signal(signal.SIGKILL)
        client.send_signal(signal.SIGKILL)
    for each in (folder, tmp_path / "whole"):
        subprocess.run([sys.executable, script, each, "0", "False"], check=True, stdout=subprocess.DEVNULL)
    assert content(folder) == content(tmp_path / "whole")
