"""Damaged files of columns: rows or an error with the path, never a crash, a foreign error or bytes of other memory."""

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mlxfp as fp
from mlxfp.support.errors import DataError
from tests.support.damage import run_child

TEXTS = pa.table({"text": [f"text {number}" for number in range(40)]})


def write_ipc(path: Path, array: pa.Array) -> Path:
    with pa.ipc.new_file(path, pa.schema({"x": array.type})) as writer:
        writer.write_batch(pa.record_batch({"x": array}))
    return path


def replace(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize("offset", [1_000_000, -5])
@pytest.mark.parametrize("taken", [False, True])
def test_case_e1_an_offset_outside_an_arrow_file_is_an_error_with_the_path(tmp_path: Path, offset: int, taken: bool):
    path = write_ipc(tmp_path / "a.arrow", pa.array(["one", "seven", "ninetynine"]))
    replace(path, np.array([0, 3, 8, 18], np.int32).tobytes(), np.array([0, 3, offset, 18], np.int32).tobytes())
    dataset = fp.read_arrow(path)
    with pytest.raises(DataError, match=r"a\.arrow"):
        list(fp.pipe(dataset, fp.shuffle(seed=0)) if taken else dataset)


@pytest.mark.parametrize("packing", [None, "zstd"])
def test_an_index_outside_the_categories_of_an_arrow_file_is_an_error(tmp_path: Path, packing: str | None):
    path = tmp_path / "a.arrow"
    wrong = pa.DictionaryArray.from_arrays(pa.array([0, 1, -9], pa.int8()), pa.array(["a", "b"]), safe=False)
    with pa.ipc.new_file(path, pa.schema({"x": wrong.type}), options=pa.ipc.IpcWriteOptions(compression=packing)) as writer:
        writer.write_batch(pa.record_batch({"x": wrong}))
    with pytest.raises(DataError, match="out of bounds"):
        list(fp.read_arrow(path))
    with pytest.raises(DataError, match="out of bounds"):
        fp.read_arrow(path)[2]


def test_a_changed_number_in_a_written_folder_or_a_cache_is_an_error(tmp_path: Path):
    rows = fp.from_table(pa.table({"x": pa.array([123456789, 7])}))
    fp.write(rows, tmp_path / "written")
    cached = fp.pipe(rows, fp.cache(tmp_path / "cache"))
    list(cached)
    old, new = (np.array([number, 7]).tobytes() for number in (123456789, 123456780))
    for path in tmp_path.rglob("*.arrow"):
        replace(path, old, new)
    for dataset in (fp.read_arrow(tmp_path / "written"), fp.read_arrow(tmp_path / "cache"), fp.pipe(rows, fp.cache(tmp_path / "cache"))):
        with pytest.raises(DataError, match="SHA-256"):
            list(dataset)
        with pytest.raises(DataError, match="SHA-256"):
            dataset[1]
        with pytest.raises(DataError, match="SHA-256"):
            next(fp.iterate(fp.pipe(dataset, fp.shuffle(seed=0))))


def test_groups_in_a_damaged_cache_are_an_error(tmp_path: Path):
    grouped = fp.pipe(fp.from_table(pa.table({"x": pa.array([123456789, 7])})), fp.batch(2), fp.cache(tmp_path))
    list(grouped)
    (path,) = tmp_path.rglob("*.arrow")
    replace(path, np.array([123456789, 7]).tobytes(), np.array([123456780, 7]).tobytes())
    with pytest.raises(DataError, match="SHA-256"):
        list(fp.pipe(grouped.source.dataset, fp.cache(tmp_path)))


def test_damaged_arrow_files_never_end_the_process(tmp_path: Path):
    """300 drawn changes of files, streams, folders of `write` and caches; verified folders give equal rows or an error."""
    run_child(
        """
        import random, shutil, sys
        from pathlib import Path
        import pyarrow as pa
        import mlxfp as fp
        from tests.support.damage import damaged

        folder, chance = Path(sys.argv[1]), random.Random(0)
        table = pa.table({
            "text": [f"text {i}" if i % 5 else None for i in range(30)],
            "ids": pa.array([list(range(i % 4)) for i in range(30)], pa.list_(pa.int32())),
            "kind": pa.array([str(i % 3) for i in range(30)]).dictionary_encode(),
            "pair": [{"a": i, "b": str(i)} for i in range(30)],
        })
        views = pa.table({"view": table["text"].combine_chunks().cast(pa.string_view()), "x": list(range(30))})

        def written(name, table, stream=False, packing=None):
            options = pa.ipc.IpcWriteOptions(compression=packing)
            with (pa.ipc.new_stream if stream else pa.ipc.new_file)(folder / name, table.schema, options=options) as writer:
                writer.write_table(table, max_chunksize=12)
            return folder / name

        plain = [written("a.arrow", table), written("b.arrow", table, stream=True), written("c.arrow", table, packing="zstd"),
                 written("d.arrow", views)]
        rows = fp.from_table(table)
        fp.write(rows, folder / "w", rows_per_file=20)
        def cached(): return fp.pipe(rows, fp.cache(folder / "cache"))
        def grouped(): return fp.pipe(rows, fp.batch(7), fp.cache(folder / "groups"))
        expected = [list(rows), [list(group) for group in grouped()]]
        list(cached())
        paths = [*plain, *(path for name in ("w", "cache", "groups") for path in sorted((folder / name).rglob("*.*")))]
        errors = 0
        for number in range(300):
            path = chance.choice([path for path in paths if path.is_file()])
            content = path.read_bytes()
            path.write_bytes(damaged(content, chance))
            try:
                if path.parent == folder:
                    dataset = fp.read_arrow(path)
                    list(dataset)
                    list(fp.pipe(dataset, fp.shuffle(seed=number)))
                elif path.is_relative_to(folder / "groups"):
                    assert [list(group) for group in grouped()] == expected[1]
                elif path.is_relative_to(folder / "cache"):
                    assert list(cached()) == expected[0]
                else:
                    assert list(fp.read_arrow(folder / "w")) == expected[0]
            except fp.MlxfpError as error:
                errors += 1
                assert str(folder) in str(error), error
            except Exception as error:
                raise AssertionError(f"change {number} of {path}") from error
            finally:
                path.write_bytes(content)
        print(errors)
        """,
        tmp_path,
    )


@pytest.mark.parametrize("name", ["../outside.arrow", "/etc/passwd", "..", "", 5, None, ["a"]])
def test_case_e9_a_manifest_that_leads_out_of_its_folder_is_refused(tmp_path: Path, name: object):
    rows = fp.from_table(TEXTS)
    fp.write(rows, tmp_path / "written")
    cached = fp.pipe(rows, fp.cache(tmp_path / "cache"))
    list(cached)
    write_ipc(tmp_path / "outside.arrow", pa.array(["secret"]))
    for path in tmp_path.rglob("manifest.json"):
        content = json.loads(path.read_bytes())
        content["files"][0]["name"] = name
        path.write_text(json.dumps(content))
    for dataset in (fp.read_arrow(tmp_path / "written"), fp.read_arrow(tmp_path / "cache"), fp.pipe(rows, fp.cache(tmp_path / "cache"))):
        with pytest.raises(DataError, match=r"manifest\.json"):
            list(dataset)


def test_a_damaged_progress_entry_of_an_interrupted_write_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    texts = fp.from_table(pa.table({"text": [f"text {number}" for number in range(4000)]}))
    rows = fp.pipe(texts, fp.map(unlucky))
    with pytest.raises(RuntimeError):
        fp.write(rows, tmp_path, rows_per_file=1000)
    entries = sorted((tmp_path / ".writing").glob("part-*.json"))
    entries[0].write_bytes(b"{")
    entries[1].write_text(entries[1].read_text().replace("part-00001", "../00001"))
    monkeypatch.setenv("LUCKY", "1")
    assert fp.write(rows, tmp_path, rows_per_file=1000).rows == 4000
    assert list(fp.read_arrow(tmp_path)) == list(texts)


def unlucky(row) -> dict[str, str]:
    if row["text"] == "text 2500" and not os.environ.get("LUCKY"):
        raise RuntimeError("no luck")
    return row


def test_written_parquet_files_have_page_checksums_and_a_changed_number_is_an_error(tmp_path: Path):
    fp.write(fp.from_table(pa.table({"x": pa.array([123456789, 7])})), tmp_path, format="parquet")
    (path,) = tmp_path.glob("*.parquet")
    content = path.read_bytes()
    at = content.index(np.int64(123456789).tobytes())
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(DataError, match="part-00000"):
        list(fp.read_parquet(path))


def test_a_footer_with_another_number_of_rows_is_an_error(tmp_path: Path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": list(range(1000))}), path, compression="none")
    content = bytearray(path.read_bytes())
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    number = bytes([0xD0, 0x0F])  # 1,000 as a zigzag varint
    locations = [at for at in range(begin, len(content)) if content[at : at + 2] == number]
    assert len(locations) >= 2
    for changed in (locations[:1], locations[-1:], locations):
        copy = bytearray(content)
        for at in changed:
            copy[at] = 0xD2
        path.write_bytes(copy)
        with pytest.raises(DataError, match=r"a\.parquet"):
            rows_and_length(path)


def rows_and_length(path: Path) -> None:
    dataset = fp.read_parquet(path)
    assert fp.length(dataset) == len(list(dataset))


def test_text_in_a_parquet_file_that_is_not_utf8_is_an_error(tmp_path: Path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": ["abcdefgh"]}), path, compression="none", use_dictionary=False, write_statistics=False)
    replace(path, b"abcdefgh", b"abcd\xfffgh")
    with pytest.raises(DataError, match=r"a\.parquet"):
        list(fp.read_parquet(path))


def test_case_e2_damaged_parquet_files_give_equal_rows_or_an_error(tmp_path: Path):
    """300 drawn changes of files with and without page checksums. Without checksums, the rows may differ."""
    run_child(
        """
        import random, sys
        from pathlib import Path
        import pyarrow as pa, pyarrow.parquet as pq
        import mlxfp as fp
        from tests.support.damage import damaged

        folder, chance = Path(sys.argv[1]), random.Random(0)
        table = pa.table({
            "text": [f"text {i}" if i % 5 else None for i in range(300)],
            "ids": pa.array([list(range(i % 4)) for i in range(300)], pa.list_(pa.int32())),
            "kind": pa.array([str(i % 3) for i in range(300)]).dictionary_encode(),
            "pair": [{"a": i, "b": str(i)} for i in range(300)],
        })
        rows = fp.from_table(table)
        pq.write_table(table, folder / "plain.parquet", row_group_size=100)
        fp.write(rows, folder / "w", format="parquet")
        expected = list(rows)
        for number in range(300):
            path = chance.choice([folder / "plain.parquet", folder / "w" / "part-00000.parquet"])
            content = path.read_bytes()
            path.write_bytes(damaged(content, chance))
            try:
                dataset = fp.read_parquet(path)
                count, read = fp.length(dataset), list(dataset)
                assert count == len(read)
                assert path.parent == folder or read == expected
            except fp.MlxfpError as error:
                assert str(folder) in str(error), error
            except Exception as error:
                raise AssertionError(f"change {number} of {path}") from error
            finally:
                path.write_bytes(content)
        """,
        tmp_path,
    )
