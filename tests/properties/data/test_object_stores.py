"""S3 as it is read through s3fs, from moto's server on this machine: patterns, folders, cursors, changes, and how much is fetched."""

import gzip
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mlxfp as fp
from mlxfp.support.errors import CursorError, MissingFileError
from mlxfp.testing import laws

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: the extra remote")
s3fs = pytest.importorskip("s3fs", reason="s3fs, by which fsspec reads S3, is not installed")
servers = pytest.importorskip("moto.server", reason="moto, which plays S3, is not installed: pip install 'moto[server]'")

# Of moto, botocore and aiohttp: what they do is not this package's business.
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.filterwarnings("ignore::ResourceWarning")]

CSV = b"x,t\n" + b"".join(b"%d,word %d\n" % (i, i) for i in range(5000))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield an empty bucket, as the file system that writes to it."""
    server = servers.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"key": "anyone", "secret": "anything", "endpoint_url": f"http://{host}:{port}"}
    monkeypatch.setitem(fsspec.config.conf, "s3", options)  # as a file in ~/.config/fsspec does
    system = s3fs.S3FileSystem(use_listings_cache=False)
    system.mkdir("bucket")
    yield system
    system.rm("bucket", recursive=True)
    server.stop()


def parquet_of(table: pa.Table) -> bytes:
    with BytesIO() as file:
        pq.write_table(table, file, row_group_size=1000)
        return file.getvalue()


def test_tables_obey_the_laws_of_sources(bucket: Any):
    bucket.pipe("bucket/a.csv", CSV)
    bucket.pipe("bucket/a.csv.gz", gzip.compress(CSV))
    bucket.pipe("bucket/a.jsonl", b"".join(b'{"x": %d}\n' % i for i in range(5000)))
    bucket.pipe("bucket/a.parquet", parquet_of(pa.table({"x": range(5000)})))
    for dataset in (
        fp.read_csv("s3://bucket/a.csv"),
        fp.read_csv("s3://bucket/a.csv.gz"),
        fp.read_jsonl("s3://bucket/a.jsonl"),
        fp.read_parquet("s3://bucket/a.parquet"),
    ):
        laws.assert_reads(dataset.source)
        laws.assert_value(dataset)
        assert [row["x"] for row in dataset] == list(range(5000))


def test_patterns_and_folders_are_looked_up_and_what_is_not_there_is_named(bucket: Any):
    for name in ("b.csv", "a.csv", ".hidden.csv", "notes.md", "deep/c.csv"):
        bucket.pipe(f"bucket/data/{name}", f"name\n{name}\n".encode())
    bucket.touch("bucket/data/")  # what the console of AWS makes for a new folder
    for address in ("s3://bucket/data", "s3://bucket/data/", "s3://bucket/data/[ab].csv", "s3://bucket/data/?.csv"):
        assert [row["name"] for row in fp.read_csv(address)] == ["a.csv", "b.csv"]
    assert [row["name"] for row in fp.read_csv("s3://bucket/**/c.csv")] == ["deep/c.csv"]
    for nowhere in ("s3://bucket/no.csv", "s3://bucket/no*.csv", "s3://bucket/data/deep/c", "s3://no-bucket/a.csv", "s3://no-bucket/*.csv"):
        with pytest.raises(MissingFileError, match="There is no file at"):
            list(fp.read_csv(nowhere))


def test_a_file_that_changes_is_read_again_and_its_cursors_are_refused(bucket: Any):
    bucket.pipe("bucket/a.csv", b"x\n1\n")
    for dataset in (fp.read_csv("s3://bucket/a.csv"), fp.read_csv("s3://bucket/*.csv")):
        bucket.pipe("bucket/a.csv", b"x\n1\n")
        assert [row["x"] for row in dataset] == [1]
        ((_, position),) = dataset.source.read(0, None)
        version = dataset.source.version()
        assert fp.read_csv("s3://bucket").source.version() == version  # however it was found
        bucket.pipe("bucket/a.csv", b"x\n2\n")
        assert dataset.source.version() != version
        assert [row["x"] for row in dataset] == [2]
        bucket.pipe("bucket/b.csv", b"x\n3\n")
        with pytest.raises(CursorError, match="changed since the cursor was made"):
            list(fp.read_csv("s3://bucket").source.read(0, position))
        bucket.rm("bucket/b.csv")


def test_a_folder_of_images_obeys_the_laws_of_datasets(bucket: Any):
    for place in range(70):
        bucket.pipe(f"bucket/pictures/{'cat' if place % 2 else 'dog'}/{place:03d}.png", str(place).encode())
    dataset = fp.read_images("s3://bucket/pictures")
    assert sorted(int(row["image"]) for row in dataset) == list(range(70))
    assert dataset[35] == {"image": b"0", "path": "dog/000.png", "class": "dog", "label": 1}
    laws.assert_reads(dataset.source)
    laws.assert_value(dataset)


def test_no_request_fetches_more_than_a_few_megabytes(bucket: Any, monkeypatch: pytest.MonkeyPatch):
    fetched: list[int] = []
    fetch = s3fs.S3File._fetch_range

    def noted(file: Any, start: int, end: int) -> bytes:
        fetched.append(end - start)
        return fetch(file, start, end)

    monkeypatch.setattr(s3fs.S3File, "_fetch_range", noted)
    bucket.pipe("bucket/a.csv", b"x,t\n" + b"1,some words\n" * 1_000_000)
    assert len(list(fp.pipe(fp.read_csv("s3://bucket/a.csv"), fp.take(10)))) == 10
    assert 0 < max(fetched) < 6e6  # by itself s3fs reads 50 MB ahead
