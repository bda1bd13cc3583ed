"""Numbers in CSV files that are not written plainly: decimal commas, currency signs and leading zeros."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, DataError
from mlxfp.testing.laws import assert_reads
from tests.data.written import blocked, write


@given(st.lists(st.floats(-1e9, 1e9, width=32), min_size=1, max_size=30))
def test_decimal_commas_give_the_numbers_of_decimal_points(tmp_path_factory, numbers: list[float]):
    """Law: a file with decimal commas, read with decimal=",", has the rows of the file with decimal points."""
    folder = tmp_path_factory.mktemp("commas")
    text = "x;n\n" + "".join(f"{number!r};{index}\n" for index, number in enumerate(numbers))
    points = fp.read_csv(write(folder / "points.csv", text), delimiter=";")
    commas = fp.read_csv(write(folder / "commas.csv", text.replace(".", ",")), delimiter=";", decimal=",")
    assert list(commas) == list(points)
    assert fp.schema(commas) == fp.schema(points)
    assert_reads(blocked(commas, 40).source)


def test_explain_shows_how_to_read_decimal_commas(tmp_path: Path):
    """Without decimal=",", the column stays text, and explain names the argument."""
    dataset = fp.read_csv(write(tmp_path / "a.csv", "n;x\n1;12,5\n2;3\n"), delimiter=";")
    assert [row["x"] for row in dataset] == ["12,5", "3"]
    assert "the text column 'x' looks like numbers, such as '12,5'; read decimal commas with decimal=','" in fp.explain(dataset)


def test_explain_shows_a_map_for_prices_and_the_map_converts_them(tmp_path: Path):
    """The note about a column of prices contains code that can be copied into a program."""
    dataset = fp.read_csv(write(tmp_path / "a.csv", 'n,price\n1,"€1,234.50"\n2,€7\n3,\n'))
    (line,) = (line for line in fp.explain(dataset).splitlines() if "looks like numbers, such as '€1,234.50'" in line)
    remedy = eval(line.partition("import re, and convert the texts with ")[2], {"fp": fp, "re": __import__("re")})
    assert [row["price"] for row in fp.pipe(dataset, remedy)] == [1234.5, 7.0, None]


def test_explain_shows_the_argument_for_words_among_numbers(tmp_path: Path):
    """Words such as "k.A." make columns of numbers text columns. The argument in the note reads numbers and keeps the other null values."""
    path = write(tmp_path / "a.csv", "n,x,y,z\n" + "1,38.5,NA,a\n" * 18 + "2,k.A.,7,b\n3,-,?,c\n")
    (line,) = (line for line in fp.explain(fp.read_csv(path)).splitlines() if "numbers with a few words" in line)
    assert "'x' ('k.A.', '-' in 2 rows)" in line
    assert "'y'" not in line  # half of the values of y are words
    nulls = eval(line.partition("give null_values=")[2])
    dataset = fp.read_csv(path, null_values=nulls)
    assert [row["x"] for row in dataset] == [*[38.5] * 18, None, None]
    assert {row["y"] for row in dataset} == {None, "7", "?"}
    assert "few words" not in fp.explain(dataset)


def test_explain_shows_a_map_for_units(tmp_path: Path):
    """The note about a column of numbers with units has a factor for each unit."""
    dataset = fp.read_csv(write(tmp_path / "a.csv", "n,w\n1,4.9 kg\n2,2695 g\n3,1.5 kg\n4,300 g\n"))
    (line,) = (line for line in fp.explain(dataset).splitlines() if "looks like numbers, such as '4.9 kg'" in line)
    code = line.partition("import re, and convert the texts with ")[2].removesuffix(", after setting the factors of the units")
    remedy = eval(code.replace("'g': 1", "'g': 0.001"), {"fp": fp, "re": __import__("re")})
    assert [row["w"] for row in fp.pipe(dataset, remedy)] == [4.9, 2.695, 1.5, 0.3]


@pytest.mark.parametrize(("mark", "number"), [(",", 6500.0), (";", 6.5)])
def test_the_delimiter_decides_whether_a_comma_separates_thousands(tmp_path: Path, mark: str, number: float):
    """Spreadsheets write semicolons between columns if the decimal mark is a comma."""
    dataset = fp.read_csv(write(tmp_path / "a.csv", f'n{mark}w\n1{mark}"6,500 kg"\n'), delimiter=mark)
    (line,) = (line for line in fp.explain(dataset).splitlines() if "looks like numbers, such as '6,500 kg'" in line)
    remedy = eval(line.partition("import re, and convert the texts with ")[2], {"fp": fp, "re": __import__("re")})
    assert [row["w"] for row in fp.pipe(dataset, remedy)] == [number]


def test_a_decimal_comma_in_a_declared_column_has_a_remedy(tmp_path: Path):
    """The error for a decimal comma in a column of floats names the argument."""
    dataset = fp.read_csv(write(tmp_path / "a.csv", "n;x\n1;12,5\n"), delimiter=";", schema={"x": pa.float64()})
    with pytest.raises(
        DataError, match=r"got '12,5', in line 2 of .*\. Read decimal commas with decimal=',', or write 12\.5 in the file\."
    ):
        list(dataset)


@pytest.mark.parametrize("decimal", [",", '"'])
def test_the_decimal_mark_differs_from_delimiter_and_quote(decimal: str):
    """A mark with two meanings is refused before any file is read."""
    with pytest.raises(ArgumentError, match="decimal must differ from delimiter and quote"):
        fp.read_csv("a.csv", decimal=decimal)


def test_leading_zeros_are_kept(tmp_path: Path):
    """A column with a leading zero in its sample stays text, also in a scan, and explain shows the type for numbers."""
    path = write(tmp_path / "a.csv", "zip,n\n94110,1\n01234,0\n,2\n")
    for dataset in (fp.read_csv(path), fp.read_csv(path, schema="scan")):
        assert list(dataset) == [{"zip": "94110", "n": 1}, {"zip": "01234", "n": 0}, {"zip": None, "n": 2}]
        assert "the text column 'zip' keeps leading zeros; for numbers, give schema={'zip': pa.int64()}" in fp.explain(dataset)
    assert [row["zip"] for row in fp.read_csv(path, schema={"zip": pa.int64()})] == [94110, 1234, None]


def test_a_scan_finds_a_leading_zero_in_a_later_block(tmp_path: Path):
    """schema="scan" reads every block, so a code in the last record decides the type."""
    path = write(tmp_path / "a.csv", "zip,n\n" + "94110,1\n" * 30 + "01234,2\n")
    assert [row["zip"] for row in blocked(fp.read_csv(path, schema="scan"), 40)][-1] == "01234"


CODES = "zip,n\n" + "94110,1\n" * 40  # All codes of the first file have five digits.
LOST = (
    r"A column of integers would lose leading zeros: got '01234' in the column 'zip' of int64, in line {line} of .*{file}\. "
    r"Declare text with schema=\{{'zip': pa\.string\(\)\}}"
)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_leading_zero_in_a_later_file_is_an_error(tmp_path: Path, suffix: str):
    """The types of the first file hold for all files, so a code of another file would lose zeros. Each remedy reads the files."""
    write(tmp_path / f"a.csv{suffix}", CODES)
    write(tmp_path / f"b.csv{suffix}", 'n,zip\n1,94110\n\n2,\n3,"01234"\n4,00001\n')
    dataset = fp.read_csv(tmp_path)
    by_workers = fp.pipe(dataset, fp.map(dict), fp.prefetch(2, workers=2))
    for rows in (dataset, by_workers, blocked(dataset, 9), fp.pipe(dataset, fp.select_columns(["zip"]))):
        with pytest.raises(DataError, match=LOST.format(line=5, file=f"b.csv{suffix}")):
            list(rows)
    assert len(list(fp.pipe(dataset, fp.select_columns(["n"])))) == 44
    assert [row["zip"] for row in fp.read_csv(tmp_path, schema={"zip": pa.string()})][-3:] == [None, "01234", "00001"]
    assert [row["zip"] for row in fp.read_csv(tmp_path, schema="scan")][-3:] == [None, "01234", "00001"]
    assert [row["zip"] for row in fp.read_csv(tmp_path, schema={"zip": pa.int64()})][-3:] == [None, 1234, 1]


def test_a_leading_zero_in_a_later_block_is_an_error(tmp_path: Path):
    """Codes sorted by state: the first megabyte has no leading zero. A resumed run raises the same error."""
    path = write(tmp_path / "a.csv", "zip,n\n" + "94110,1\n" * 200_000 + "01234,2\n")
    dataset, rows = fp.read_csv(path), []
    with pytest.raises(DataError, match=LOST.format(line=200_002, file="a.csv")):
        rows.extend(dataset)
    assert fp.schema(dataset).equals(pa.schema({"zip": pa.int64(), "n": pa.int64()}), check_metadata=True)
    before = next(cursor for row, cursor in fp.iterate(dataset) if row)
    with pytest.raises(DataError, match=LOST.format(line=200_002, file="a.csv")):
        list(fp.iterate(dataset, cursor=before))


@given(
    st.lists(st.integers(10, 99).map(str), min_size=1, max_size=5),
    st.lists(st.integers(-20, 120).map(str) | st.integers(0, 9).map("0{}".format) | st.just(""), max_size=12),
    st.integers(1, 30),
)
def test_codes_of_later_files_are_right_or_refused(tmp_path_factory, first: list[str], later: list[str], size: int):
    """Law: if the first file has numbers of two digits, a file has the integers of its texts, or an error names the first lost zero."""
    folder = tmp_path_factory.mktemp("codes")
    write(folder / "a.csv", "x,n\n" + "".join(f"{text},1\n" for text in first))
    write(folder / "b.csv", "x,n\n" + "".join(f"{text},1\n" for text in later))
    dataset = blocked(fp.read_csv(folder), size)
    zeros = [number for number, text in enumerate(later) if text[:1] == "0" and len(text) > 1]
    if zeros:
        with pytest.raises(DataError, match=f"got '{later[zeros[0]]}' in the column 'x' of int64, in line {zeros[0] + 2} of "):
            list(dataset)
    else:
        assert [row["x"] for row in dataset] == [int(text) if text else None for text in [*first, *later]]


def test_a_leading_zero_can_be_a_failed_row(tmp_path: Path):
    """With on_error, a row that would lose zeros is a failed row, and other rows are read."""
    write(tmp_path / "a.csv", CODES)
    write(tmp_path / "b.csv", "zip,n\n01234,1\n94111,2\n")
    rows = list(fp.pipe(fp.read_csv(tmp_path), fp.on_error("skip")))
    assert [row["zip"] for row in rows] == [94110] * 40 + [94111]
