"""Addresses of remote files: no secret is printed, and errors of servers are named."""

import gzip
import io
import pickle
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet
import pytest

import mlxfp as fp
from mlxfp.errors import ArgumentError, DataError, MissingFileError

pytest.importorskip("aiohttp", reason="aiohttp is not installed: the extra remote")

SECRETS = ("s3cret", "pa55word", "t0ken")
QUERY = "?X-Amz-Signature=s3cret%2F=&sig=s3cret&token=t0ken"
TABLE = pa.table({"a": list(range(1000))})


def content(name: str) -> bytes:
    """Return a file with 1000 rows in the format of its suffix."""
    out = io.BytesIO()
    if name.endswith(".parquet"):
        pa.parquet.write_table(TABLE, out)
    elif name.endswith(".arrow"):
        with pa.ipc.new_file(out, TABLE.schema) as writer:
            writer.write(TABLE)
    elif name.endswith(".zip"):
        with ZipFile(out, "w") as archive:
            archive.writestr("a.csv", content("a.csv"))
    else:
        head, line = ("a\n", "{}\n") if name.endswith(".csv") else ("", '{{"a": {}}}\n')
        out.write((head + "".join(line.format(number) for number in range(1000))).encode())
    return out.getvalue()


class Server(BaseHTTPRequestHandler):
    """Serves `content`, compressed for paths that begin with /gzip, and answers /403.csv with 403, /loop.csv with a redirect to itself."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        path = urlsplit(self.path).path
        status = path[1:4]
        data = b"" if status.isdecimal() or path == "/loop.csv" else content(path)
        if path.startswith("/broken"):
            data = data.replace(b"900", b"x, y")
        if path.startswith("/gzip"):
            data = gzip.compress(data)
        asked = None if path.startswith("/gzip") else self.headers.get("Range")
        self.send_response(302 if path == "/loop.csv" else int(status) if status.isdecimal() else 206 if asked else 200)
        if asked:
            first, last = (int(number) for number in asked.removeprefix("bytes=").split("-"))
            self.send_header("Content-Range", f"bytes {first}-{min(last, len(data) - 1)}/{len(data)}")
            data = data[first : last + 1]
        for name, value in (("Location", "/loop.csv"), ("Content-Encoding", "gzip")):
            if path.startswith("/loop" if name == "Location" else "/gzip"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *values: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def check_clean(text: str) -> None:
    assert not [secret for secret in SECRETS if secret in text], text


def test_case_e11_secrets_of_an_address_are_in_no_text(host: str, tmp_path: Path):
    """User, password and values of the query are in no repr, plan, cursor, manifest or cache, but the server gets them."""
    rows = fp.pipe(fp.read_csv(f"http://me:pa55word@{host}/a.csv{QUERY}"), fp.map(dict), fp.shuffle(seed=0, buffer=10))
    check_clean(repr(rows) + str(rows) + fp.explain(rows) + rows._repr_html_())
    assert "http://***@127.0.0.1" in repr(rows)
    assert len(list(rows)) == 1000
    cursor = [cursor for _, cursor in fp.iterate(rows)][500]
    check_clean(cursor.to_bytes().decode(errors="replace") + repr(cursor) + cursor._repr_html_())
    fp.write(rows, tmp_path / "written")
    list(fp.pipe(rows, fp.cache(tmp_path / "cache")))
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        check_clean(file.read_bytes().decode(errors="replace"))
    assert len(list(pickle.loads(pickle.dumps(fp.read_csv(f"http://me:pa55word@{host}/a.csv{QUERY}"))))) == 1000


@pytest.mark.parametrize("name", ["404.csv", "403.csv", "401.csv", "410.csv", "loop.csv", "broken.csv", "broken.jsonl", "broken.parquet"])
def test_case_e11_secrets_of_an_address_are_in_no_error(host: str, name: str):
    read = fp.read_parquet if name.endswith("parquet") else fp.read_jsonl if name.endswith("jsonl") else fp.read_csv
    rows = read(f"http://me:pa55word@{host}/{name}{QUERY}")
    if name == "broken.parquet":
        rows = fp.pipe(rows, fp.map(lambda row: 1 / 0))
    with pytest.raises(Exception) as caught:  # noqa: PT011  # any error
        list(rows)
    check_clean("".join(traceback.format_exception(caught.value)))


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:pa55word@bucket/a.csv",
        "nosuch://key:pa55word@host/a.csv?sig=s3cret",
        "simplecache::http://me:pa55word@127.0.0.1:9/a.csv?sig=s3cret",
        "zip://a.csv::http://me:pa55word@127.0.0.1:9/a.zip?sig=s3cret",
        "http://127.0.0.1:9/a.csv?s3cret",
        "http://127.0.0.1:9/a.csv#access_token=t0ken",
        "http://me:pa55'word@127.0.0.1:9/a.csv",
    ],
)
def test_secrets_of_other_forms_of_addresses_are_in_no_text(address: str, monkeypatch: pytest.MonkeyPatch):
    rows = fp.read_csv([address, "other.csv"])
    check_clean(repr(rows) + repr(fp.read_images(address)) + repr(fp.read_tar(address)))
    assert "pa55" not in repr(rows)
    check_clean(str(DataError(f"A problem, in {address}.")) + repr(ArgumentError(f"got {address!r}.")))


def test_case_e16_a_loop_of_redirects_and_a_refused_request_are_named(host: str):
    for name, message in (
        ("loop.csv", "the server redirects in a loop, from http://.*/loop.csv. Open the address in a browser"),
        ("403.csv", "the server answers 403 Forbidden, from http://.*/403.csv. Check the address and your permission"),
        ("401.csv", "the server answers 401 Unauthorized"),
    ):
        with pytest.raises(DataError, match=message):
            list(fp.read_csv(f"http://{host}/{name}"))
    for name in ("404.csv", "410.csv"):
        with pytest.raises(MissingFileError, match="There is no file at"):
            list(fp.read_csv(f"http://{host}/{name}"))


READERS = {"a.csv": fp.read_csv, "a.jsonl": fp.read_jsonl, "a.parquet": fp.read_parquet, "a.arrow": fp.read_arrow, "a.csv.zip": fp.read_csv}


@pytest.mark.parametrize("name", READERS)
def test_case_e17_answers_that_the_server_compresses_are_read(host: str, name: str):
    """Content-Encoding: gzip hides the size of a file. Resuming reads from the start."""
    rows = READERS[name](f"http://{host}/gzip-{name}?v=1")
    pairs = list(fp.iterate(rows))
    assert [row["a"] for row, _ in pairs] == list(range(1000))
    assert [row["a"] for row, _ in fp.iterate(rows, pairs[500][1])] == list(range(501, 1000))


@pytest.mark.parametrize("address", ["reference://a.csv", "reference://", "nosuch://a.csv"])
def test_case_e17_a_scheme_that_needs_arguments_is_named(address: str):
    with pytest.raises(ArgumentError, match=r"The address '.*' cannot be read: .*\. Use a scheme that fsspec opens by address alone"):
        list(fp.read_csv(address))
