"""Files of a server that ignores range requests, such as Python's own, are read completely."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mlxfp as fp

ROWS = 60_000


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Print no requests."""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of a folder with files of more than 4 MB, the size of one request."""
    folder = tmp_path_factory.mktemp("served")
    texts = [f"{number:_>100}" for number in range(ROWS)]
    (folder / "a.csv").write_text("x\n" + "\n".join(texts) + "\n")
    (folder / "a.txt").write_text("\n".join(texts) + "\n")
    (folder / "a.jsonl").write_text("".join(f'{{"x": "{text}"}}\n' for text in texts))
    pq.write_table(pa.table({"x": texts, "y": range(ROWS)}), folder / "a.parquet", row_group_size=20_000, compression="none")
    with pa.ipc.new_file(folder / "a.arrow", pa.schema({"x": pa.string()})) as writer:
        for start in range(0, ROWS, 20_000):
            writer.write(pa.record_batch({"x": texts[start : start + 20_000]}))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (fp.read_csv, "a.csv"),
        (fp.read_jsonl, "a.jsonl"),
        (fp.read_text, "a.txt"),
        (fp.read_parquet, "a.parquet"),
        (fp.read_arrow, "a.arrow"),
    ],
)
def test_all_rows_are_read(address, read, name):
    """The rows are complete and in order, also from a cursor in the middle."""
    rows = read(f"{address}/{name}")
    column = "text" if name == "a.txt" else "x"
    assert [row[column] for row in rows] == [f"{number:_>100}" for number in range(ROWS)]
    groups = fp.iterate(fp.pipe(rows, fp.batch(25_000)))
    next(groups)
    _, cursor = next(groups)
    (last,) = [group for group, _ in fp.iterate(fp.pipe(rows, fp.batch(25_000)), cursor)]
    assert (len(last), last[0][column]) == (10_000, f"{50_000:_>100}")
