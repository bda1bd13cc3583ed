"""What CSV, JSON lines and text share: memory that does not grow with the file, and one schema for all of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.data.sources.columns import settled
from mlxfp.data.sources.files import BLOCK
from mlxfp.data.sources.records.line_blocks import first_failure, shorten
from mlxfp.support.arrow_types import type_code
from tests.data.written import write

if TYPE_CHECKING:
    from mlxfp.core.datasets import Dataset

_PEAK_AFTER_EACH = """
import resource, sys
from mlxfp.data.sources.csv_files import read_csv
from mlxfp.data.sources.json_files import read_jsonl
from mlxfp.data.sources.text_files import read_text
for path in sys.argv[2:]:
    for _ in eval(sys.argv[1])(path).source.read(0, None):
        pass
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
"""


@pytest.mark.parametrize("packing", ["", ".gz"])
def test_blocks_grow_so_that_the_first_rows_come_soon(tmp_path: Path, packing: str):
    with pa.output_stream(tmp_path / f"a.txt{packing}", compression="detect") as stream:
        for _ in range(200):
            stream.write((b"x" * 99 + b"\n") * 1_000)  # 20 MB in all
    source: Any = fp.read_text(tmp_path / f"a.txt{packing}").source
    positions: list[Any] = []
    sizes: list[int] = []
    for chunk, after in source.read(0, None):
        sizes.append(100 * chunk.num_rows)
        positions.append(after)
    assert sizes[0] <= BLOCK < sizes[3] < max(sizes) <= 8 * BLOCK
    for place in (0, 2, len(sizes) - 2):  # where a block ends depends only on where it begins
        assert [100 * chunk.num_rows for chunk, _ in source.read(0, positions[place])] == sizes[place + 1 :]


@pytest.mark.parametrize("reader", ["read_csv", "read_jsonl", "read_text"])
@pytest.mark.parametrize("packing", [None, "gzip"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, reader: str, packing: str | None):
    line = b'{"n": 1, "t": "a text that is long enough to count"}\n'
    for name, count in (("small", 100_000), ("large", 1_000_000)):  # 5 and 50 MB
        with pa.output_stream(tmp_path / name, compression=packing) as stream:
            stream.write(b"a,b\n" if reader == "read_csv" else line)
            for _ in range(count // 1_000):
                stream.write(line * 1_000)
    paths = [Path(tmp_path, name).rename(tmp_path / f"{name}{'.gz' if packing else ''}") for name in ("small", "large")]
    command = [sys.executable, "-c", _PEAK_AFTER_EACH, reader, *map(str, paths)]
    small, large = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert large - small < 12_000_000


@pytest.mark.parametrize(("read", "line"), [(fp.read_csv, "12345678"), (fp.read_jsonl, '{"n": 1}'), (fp.read_text, "12345678")])
def test_the_schema_is_found_without_reading_on(tmp_path: Path, read: Any, line: str, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a"
    path.write_text(f"{line}\n" * 500_000)
    dataset: Dataset[Any] = read(path)
    monkeypatch.setattr("mlxfp.data.sources.files.read_bytes", _at_most(3 << 20))
    assert len(fp.schema(dataset)) == 1
    assert fp.schema(dataset) == fp.schema(read(path))


def _at_most(budget: int) -> Any:
    def read(stream: Any, size: int, path: str) -> bytes:
        nonlocal budget
        budget -= size
        assert budget >= 0, "too much was read"
        data: bytes = stream.read(size)
        return data

    return read


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (pa.int64(), "pa.int64()"),
        (pa.float64(), "pa.float64()"),
        (pa.float32(), "pa.float32()"),
        (pa.bool_(), "pa.bool_()"),
        (pa.date32(), "pa.date32()"),
        (pa.time32("s"), "pa.time32('s')"),
        (pa.timestamp("us", "UTC"), "pa.timestamp('us', 'UTC')"),
        (pa.decimal128(5, 2), "pa.decimal128(5, 2)"),
        (pa.list_(pa.struct({"a b": pa.string()})), "pa.list_(pa.struct({'a b': pa.string()}))"),
        (pa.large_list(pa.list_(pa.float16(), 3)), "pa.large_list(pa.list_(pa.float16(), 3))"),
        (pa.dictionary(pa.int8(), pa.large_string()), "pa.dictionary(pa.int8(), pa.large_string())"),
        (pa.fixed_shape_tensor(pa.uint8(), (2, 3)), "pa.fixed_shape_tensor(pa.uint8(), (2, 3))"),
        (pa.binary(3), "pa.binary(3)"),
        (pa.date64(), "pa.date64()"),
        (pa.json_(), "pa.json_()"),
    ],
)
def test_types_print_as_the_code_that_makes_them(kind: pa.DataType, code: str):
    assert type_code(kind) == code
    assert eval(code, {"pa": pa}) == kind


def test_settled_types_hold_text_whatever_it_looked_like():
    looked = pa.struct({"on": pa.date32(), "when": pa.list_(pa.timestamp("s")), "none": pa.null(), "n": pa.int64()})
    assert settled(looked) == pa.struct({"on": pa.string(), "when": pa.list_(pa.string()), "none": pa.string(), "n": pa.int64()})


def test_the_first_failure_is_found():
    def parse(end: int) -> None:
        if end > 7:
            raise pa.ArrowInvalid

    assert first_failure([2, 5, 7, 9, 11], parse) == (7, 9)
    assert first_failure([8], parse) == (0, 8)


def test_long_values_are_shortened():
    assert shorten("short") == "'short'"
    assert len(shorten("x" * 1_000)) == 80


@pytest.mark.parametrize("size", [400_000, 600_000, 5_000_000])
@pytest.mark.parametrize("read", [fp.read_csv, fp.read_jsonl])
def test_a_record_longer_than_a_block_stands_between_short_ones(tmp_path: Path, read: Any, size: int):
    texts = ["short", "x" * size, "short"] * 2
    lines = [json.dumps({"t": text}) for text in texts] if read is fp.read_jsonl else ["t", *texts]
    (tmp_path / "a").write_text("\n".join(lines))
    assert [row["t"] for row in read(tmp_path / "a")] == texts


def test_line_ends_inside_quotes_are_read_wherever_they_stand(tmp_path: Path):
    # https://github.com/apache/arrow/issues/51368: over several blocks, Arrow drops a byte of \r\n where one ends. It is given one block.
    for place in (edge + step for edge in (1 << 16, 1 << 19, 1 << 20) for step in range(-4, 5)):
        text = "x" * (place - 8) + "\r\ny"  # behind the 8 bytes before it
        (tmp_path / "a.csv").write_bytes(f'n,t\r\n1,"{text}"\r\n2,z\r\n'.encode())
        assert [row["t"] for row in fp.read_csv(tmp_path / "a.csv")] == [text, "z"]


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
def test_byte_order_marks_are_left_out_of_every_file(tmp_path: Path, packing: str):
    for number in range(2):
        write(tmp_path / f"{number}.csv{packing}", f"\ufeffn,t\r\n{number},a\r\n")
        write(tmp_path / f"{number}.jsonl{packing}", f'\ufeff{{"n": {number}, "t": "a"}}\r\n')
    expected = [{"n": 0, "t": "a"}, {"n": 1, "t": "a"}]
    assert list(fp.read_csv(tmp_path)) == list(fp.read_jsonl(tmp_path)) == expected


def test_columns_in_another_order_are_read_by_name(tmp_path: Path):
    write(tmp_path / "0.jsonl", '{"n": 0, "t": "a"}\n')
    write(tmp_path / "1.jsonl", '{"t": "b", "n": 1}\n')
    assert list(fp.read_jsonl(tmp_path)) == [{"n": 0, "t": "a"}, {"n": 1, "t": "b"}]
