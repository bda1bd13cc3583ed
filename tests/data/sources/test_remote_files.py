"""Remote files give what the same local files give, and resuming fetches only what follows the cursor."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mlxfp as fp
from mlxfp.data.sources import remote_files
from mlxfp.data.sources.parquet_files import read_parquet
from mlxfp.support.errors import ArgumentError, CursorError, DataError, MissingExtraError, MissingFileError
from mlxfp.testing import laws

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: the extra remote")

TABLE = pa.table({"x": range(5000), "t": [f"word {i}" for i in range(5000)]})
LINES = "x\tt\n" + "".join(f"{i}\tword {i}\n" for i in range(5000))


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True) if system.exists("/") else None
    system.store.clear()


def parquet_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=1000)
    return sink.getvalue().to_pybytes()


def arrow_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    return sink.getvalue().to_pybytes()


def zip_of(name: str, data: bytes) -> bytes:
    sink = BytesIO()
    with ZipFile(sink, "w") as archive:
        archive.writestr(name, data)
    return sink.getvalue()


def read_tsv(path: Any) -> Any:
    return fp.read_csv(path, delimiter="\t")


FORMATS: dict[str, tuple[Any, bytes]] = {
    "a.tsv": (read_tsv, LINES.encode()),
    "a.tsv.gz": (read_tsv, gzip.compress(LINES.encode())),
    "a.tsv.zip": (read_tsv, zip_of("a.tsv", LINES.encode())),
    "a.jsonl": (fp.read_jsonl, "".join(f'{{"x": {i}}}\n' for i in range(5000)).encode()),
    "a.txt": (fp.read_text, b"one\ntwo\n"),
    "a.parquet": (read_parquet, parquet_of(TABLE)),
    "a.arrow": (fp.read_arrow, arrow_of(TABLE)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_reads_the_same_remote_files(memory: Any, tmp_path: Path, name: str):
    read, data = FORMATS[name]
    (tmp_path / name).write_bytes(data)
    memory.pipe(f"/data/{name}", data)
    here, there = read(tmp_path / name), read(f"memory://data/{name}")
    laws.assert_same_items(there, here)
    laws.assert_reads(there.source)
    laws.assert_value(there)
    laws.assert_same_items(read((tmp_path / name).as_uri()), here)


def test_patterns_and_folders_are_sorted_and_changes_are_noticed(memory: Any):
    for name, data in {"b.csv": b"x\n2\n", "a.csv": b"x\n1\n", "c.txt": b"no", ".d.csv": b"x\n9\n", "deep/e.csv": b"x\n3\n"}.items():
        memory.pipe(f"/data/{name}", data)
    folder = fp.read_csv("memory://data")
    assert [row["x"] for row in folder] == [1, 2]
    assert [row["x"] for row in fp.read_csv(["memory://data/b.csv", "memory://data/deep/*.csv"])] == [2, 3]
    assert [row["x"] for row in fp.read_csv("memory://data/**/e.csv")] == [3]
    (_, position), *_ = folder.source.read(0, None)
    version = folder.source.version()
    memory.pipe("/data/b.csv", b"x\n22\n")
    assert folder.source.version() != version
    assert fp.inspect.fingerprint(folder) == fp.inspect.fingerprint(fp.read_csv("memory://data"))
    with pytest.raises(CursorError, match="A file has changed since the cursor was made"):
        list(folder.source.read(0, position))


def test_what_is_not_there_and_what_is_missing_is_named(memory: Any, monkeypatch: pytest.MonkeyPatch):
    for address in ("memory://nothing.csv", "memory://nothing/*.csv"):
        with pytest.raises(MissingFileError, match=r"There is no file at 'memory://nothing.*\.csv'\. Check the address"):
            list(fp.read_csv(address))
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    with pytest.raises(
        MissingExtraError, match=r'Reading s3://bucket/a\.csv needs fsspec\. Install it with: pip install "mlxfp\[remote\]"'
    ):
        remote_files.find_remote("s3://bucket/a.csv", (".csv",))


def test_a_scheme_that_nobody_knows_and_one_whose_package_is_missing_are_named(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(
        ArgumentError, match=r"The address 'shop://a\.csv' cannot be read: Protocol not known: shop\. Use a scheme that fsspec opens"
    ):
        list(fp.read_csv("shop://a.csv"))
    known = import_module("fsspec.registry").known_implementations
    monkeypatch.setitem(known, "shop", {"class": "no_such_package.Shop", "err": "Install shopfs"})
    with pytest.raises(MissingExtraError, match=r"Reading shop://a\.csv needs a package that is not installed: Install shopfs\."):
        list(fp.read_csv("shop://a.csv"))


def test_folders_of_images_and_sound_are_read_remotely(memory: Any, tmp_path: Path):
    for name, data in {"cat/[1].png": b"1", "ant/b/2.JPG": b"2", "ant/.3.png": b"no", "ant/.d/4.png": b"no", "ant/5.txt": b"no"}.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
        memory.pipe(f"/pictures/in/{name}", data)
        memory.pipe(f"/pictures/incoming/{name}", data)  # a neighbour with the same beginning
    there = fp.read_images("memory://pictures/in/")
    laws.assert_same_items(there, fp.read_images(tmp_path / "in"))
    laws.assert_same_items(fp.read_images((tmp_path / "in").as_uri()), fp.read_images(tmp_path / "in"))
    laws.check(there)
    version = there.source.version()
    memory.pipe("/pictures/in/cat/[1].png", b"12")
    assert there.source.version() != version
    memory.pipe("/pictures/in/cat/[1].png", b"")
    with pytest.raises(DataError, match=r"A file is empty: got 0 bytes, in 'memory://pictures/in/cat/\[1\]\.png'"):
        list(there)
    for nowhere in ("memory://pictures/no", "https://example.org/pictures"):
        with pytest.raises(MissingFileError, match=f"No file in the folder '{nowhere}' or below it ends in .aif"):
            list(fp.read_audio(nowhere))


class Server(BaseHTTPRequestHandler):
    """Serves one file, in parts where a part is asked for, and notes which bytes it sent."""

    data = b""
    sent: list[tuple[int, int]]

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        if not self.path.endswith(("/a.tsv", "/a.parquet")):
            self.send_error(404)
            return
        asked, size = self.headers.get("Range"), len(self.data)
        first, last = 0, size - 1
        if asked:
            start, _, end = asked.removeprefix("bytes=").partition("-")
            first, last = int(start), min(int(end) if end else last, last)
        self.send_response(206 if asked else 200)
        self.send_header("Accept-Ranges", "bytes")
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        if body:
            self.sent.append((first, last + 1))
            with suppress(ConnectionError):  # a reader may have enough before the end
                self.wfile.write(self.data[first : last + 1])

    def log_message(self, *values: Any) -> None:
        """Say nothing."""


class Failing(Server):
    """Fails at every third request for bytes: a reset connection, a status, or a body that is cut short."""

    faults: list[str]
    asked = 0

    def do_GET(self) -> None:
        kind = type(self)
        kind.asked += 1
        fault = self.faults[kind.asked // 3 % len(self.faults)] if kind.asked % 3 == 0 else ""
        if fault == "reset":
            self.connection.close()
        elif fault == "short":
            self.data, whole = self.data, self.wfile
            self.wfile = Short(whole)
            self.answer(body=True)
            self.close_connection = True
        elif fault:
            self.send_response(int(fault))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.answer(body=True)


class Silent(Server):
    """Takes requests and says nothing: to each `every`-th for bytes, from the head on or in the middle of the body."""

    every = 1
    middle = False
    sized = True
    asked = 0
    over: threading.Event

    def do_HEAD(self) -> None:
        self.answer(body=False) if self.middle or self.every > 1 else self.wait()

    def do_GET(self) -> None:
        kind = type(self)
        kind.asked += 1
        silent = kind.asked % self.every == 0
        if silent and self.middle:
            self.wfile = Short(self.wfile)
        if self.middle or not silent:
            self.answer(body=True)
        if silent:
            self.wfile.flush()
            self.wait()

    def wait(self) -> None:
        self.over.wait(60)
        self.close_connection = True

    def send_header(self, name: str, value: str) -> None:
        if self.sized or name != "Content-Length":
            super().send_header(name, value)


class Short:
    """Writes heads whole, and half of a body."""

    def __init__(self, whole: Any) -> None:
        self.whole, self.head = whole, True

    def write(self, data: bytes) -> int:
        self.whole.write(data if self.head else data[: len(data) // 2])
        self.head = False
        return len(data)

    def flush(self) -> None:
        self.whole.flush()

    def close(self) -> None:
        self.whole.close()

    @property
    def closed(self) -> bool:
        return bool(self.whole.closed)


@contextmanager
def served(data: bytes, handler: type[Server] = Server, **options: Any) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    sent: list[tuple[int, int]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("One", (handler,), {"data": data, "sent": sent, **options}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", sent
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_over_http_a_resumed_run_fetches_only_what_follows():
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by aiohttp, which is not installed")
    data = ("x\tt\n" + "".join(f"{i}\t{'word ' * 200}\n" for i in range(40_000))).encode()
    with served(data) as (address, sent):
        source = read_tsv(f"{address}/a.tsv").source
        read = list(source.read(0, None))
        assert sum(chunk.num_rows for chunk, _ in read) == 40_000
        sent.clear()
        ((chunk, _),) = source.read(0, read[-2][1])
        assert chunk.equals(read[-1][0])
        assert 0 < sum(end - start for start, end in sent) < len(data) // 2  # what follows, and what fsspec reads ahead of the header
        with pytest.raises(MissingFileError, match="There is no file at 'http://127"):
            list(read_tsv(f"{address}/b.tsv"))


def test_over_http_only_the_columns_of_parquet_that_are_needed_are_fetched():
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by aiohttp, which is not installed")
    numbers = np.random.default_rng(0).random((8, 200_000))
    data = parquet_of(pa.table({f"c{place}": column for place, column in enumerate(numbers)}))
    with served(data) as (address, sent):
        column = pa.concat_arrays([chunk["c5"] for chunk, _ in read_parquet(f"{address}/a.parquet", columns=["c5"]).source.read(0, None)])
        assert column.equals(pa.array(numbers[5]))
        assert sum(end - start for start, end in sent) < len(data) // 3


@pytest.mark.parametrize("faults", [["reset"], ["503"], ["429"], ["short"], ["reset", "502", "short", "429"]])
def test_a_connection_that_fails_now_and_then_is_tried_again(monkeypatch: pytest.MonkeyPatch, faults: list[str]):
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by aiohttp, which is not installed")
    monkeypatch.setattr(remote_files, "_WAIT", 0.0)
    monkeypatch.setattr(remote_files, "_AHEAD", 1 << 15)
    data = ("x\tt\n" + "".join(f"{i}\t{'word ' * 20}\n" for i in range(10_000))).encode()
    with served(data, Failing, faults=faults) as (address, _):
        source = read_tsv(f"{address}/a.tsv").source
        read = list(source.read(0, None))
        assert [row for chunk, _ in read for row in chunk["x"].to_pylist()] == list(range(10_000))
        again = source.read(0, read[0][1])
        assert sum(chunk.num_rows for chunk, _ in again) == 10_000 - read[0][0].num_rows
    table = parquet_of(pa.table({"x": np.arange(200_000)}))
    with served(table, Failing, faults=faults) as (address, _):
        assert sum(chunk.num_rows for chunk, _ in read_parquet(f"{address}/a.parquet").source.read(0, None)) == 200_000


@pytest.mark.parametrize(
    ("fault", "said"), [("short", "Client\\w+Error"), ("503", "ClientResponseError: 503"), ("reset", "Server\\w+Error")]
)
def test_a_connection_that_stays_broken_is_named_and_a_short_body_is_never_the_end(monkeypatch: pytest.MonkeyPatch, fault: str, said: str):
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by aiohttp, which is not installed")
    monkeypatch.setattr(remote_files, "_WAIT", 0.0)
    monkeypatch.setattr(remote_files, "_AHEAD", 1 << 15)
    data = LINES.encode() * 20
    with served(data, Failing, faults=[fault]) as (address, _):
        stream = remote_files.open_remote(f"{address}/a.tsv")
        assert stream.read(1000) == data[:1000]
        monkeypatch.setattr(Failing, "do_GET", lambda self: (setattr(type(self), "asked", 2), DO_GET(self)))
        with pytest.raises(DataError, match=rf"A remote file cannot be read: {said}.*, after 5 attempts, from byte 1,000 of .*a\.tsv\."):
            stream.read(len(data))


DO_GET = Failing.do_GET


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Wait for servers 0.3 seconds, five times; yield what ends the silence of the server."""
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by aiohttp, which is not installed")
    monkeypatch.setattr(remote_files, "_WAIT", 0.0)
    monkeypatch.setattr(remote_files, "_AHEAD", 1 << 15)
    monkeypatch.setattr(remote_files, "_SILENCE", 0.3)
    over = threading.Event()
    yield over
    over.set()


@pytest.mark.parametrize("middle", [False, True])
def test_a_server_that_falls_silent_now_and_then_is_asked_again(impatient: threading.Event, middle: bool):
    data = ("x\tt\n" + "".join(f"{i}\t{'word ' * 20}\n" for i in range(1500))).encode()
    with served(data, Silent, every=3, middle=middle, over=impatient) as (address, _):
        assert [row["x"] for row in read_tsv(f"{address}/a.tsv")] == list(range(1500))


@pytest.mark.parametrize("read", [read_tsv, read_parquet])
def test_a_server_that_never_answers_is_named_after_a_bounded_time(impatient: threading.Event, read: Any):
    with served(b"", Silent, over=impatient) as (address, _):
        name = f"{address}/a.{'parquet' if read is read_parquet else 'tsv'}"
        with pytest.raises(
            DataError, match=rf"A remote file cannot be read: the server does not answer, after 5 attempts, from {name}\. Check"
        ):
            list(read(name))


def test_a_server_that_falls_silent_in_the_middle_of_a_body_of_unknown_length_is_named(impatient: threading.Event):
    with served(LINES.encode(), Silent, middle=True, sized=False, over=impatient) as (address, _):
        stream = remote_files.open_remote(f"{address}/a.tsv")
        with pytest.raises(DataError, match=r"the server does not answer, after 1 attempt, from http://.*/a\.tsv"):
            list(iter(lambda: stream.read(1 << 20), b""))


def test_what_a_user_configures_for_http_stays(monkeypatch: pytest.MonkeyPatch):
    aiohttp = pytest.importorskip("aiohttp", reason="fsspec reads HTTP by aiohttp, which is not installed")
    monkeypatch.setitem(fsspec.config.conf, "http", {"client_kwargs": {"trust_env": True}, "block_size": 1000})
    system, _ = remote_files._split("http://127.0.0.1/a.csv?from=https://example.org")
    assert (system.client_kwargs["trust_env"], system.client_kwargs["timeout"].sock_read, system.block_size) == (True, 60.0, 1000)
    assert system.client_kwargs["timeout"].total is None  # a large file may take long
    known = fsspec.get_filesystem_class(
        "https"
    ).protocol  # of a version in which it is "http" alone, fsspec itself reads only those options
    name = "https" if "https" in known else "http"
    monkeypatch.setitem(fsspec.config.conf, name, {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=5)}})
    for address in ("https://127.0.0.1/a.csv", "filecache::https://127.0.0.1/a.csv"):
        system, _ = remote_files._split(address)
        assert getattr(system, "fs", system).client_kwargs["timeout"] == aiohttp.ClientTimeout(total=5)
    assert remote_files._http_options("memory://https://a.csv") == {}


@pytest.mark.parametrize("error", [PermissionError("not yours"), KeyboardInterrupt()])
def test_what_is_forbidden_or_interrupted_is_not_tried_again(error: BaseException):
    calls = []

    def failing() -> None:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        remote_files._retried(failing, "memory://a.csv")
    assert len(calls) == 1
