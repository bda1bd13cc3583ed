"""Real files are read whole, with the right values in the right places."""

from pathlib import Path
from typing import Any

import pytest

from mlxfp.data.csv_files import read_csv
from mlxfp.data.text_files import read_text
from tests.data.written import blocked


@pytest.mark.parametrize(
    ("file", "count", "place", "expected"),
    [
        ("titanic/train.csv", 891, 0, {"Name": "Braund, Mr. Owen Harris", "Age": 22.0, "Cabin": None, "Embarked": "S"}),
        ("titanic/train.csv", 891, 890, {"Name": "Dooley, Mr. Patrick", "Age": 32.0, "Fare": 7.75, "Embarked": "Q"}),
        ("titanic/test.csv", 418, 0, {"Name": "Kelly, Mr. James", "Age": 34.5}),
        ("house_prices/train.csv", 1460, 0, {"SalePrice": 208500, "Alley": None, "LotFrontage": 65, "1stFlrSF": 856}),
        ("house_prices/test.csv", 1459, 1458, {"Id": 2919}),
        ("calhousing/housing.csv", 20640, 0, {"median_house_value": 452600.0, "ocean_proximity": "NEAR BAY"}),
    ],
)
def test_real_tables(data_folder: Path, file: str, count: int, place: int, expected: dict[str, Any]) -> None:
    rows = list(blocked(read_csv(data_folder / file), 4096))
    assert len(rows) == count
    assert expected.items() <= rows[place].items()
    assert rows == list(read_csv(data_folder / file))


@pytest.mark.parametrize(("file", "count"), [("train.tsv", 6920), ("dev.tsv", 872), ("test.tsv", 1821)])
def test_real_sentences(data_folder: Path, file: str, count: int) -> None:
    dataset = read_csv(data_folder / "sst2" / file, delimiter="\t", quote=None, columns=["text", "label"])
    rows = list(dataset)
    assert len(rows) == count
    assert {row["label"] for row in rows} == {0, 1}
    lines = (data_folder / "sst2" / file).read_text().splitlines()
    assert [f"{row['text']}\t{row['label']}" for row in rows] == lines


@pytest.mark.parametrize(
    ("file", "count", "first"),
    [("tinyshakespeare/input.txt", 40_000, "First Citizen:"), ("wikitext2/valid.txt", 3_760, " ")],
)
def test_real_text(data_folder: Path, file: str, count: int, first: str) -> None:
    rows = [row["text"] for row in read_text(data_folder / file)]
    assert len(rows) == count
    assert rows[0] == first
    assert rows == (data_folder / file).read_bytes().decode().removesuffix("\n").split("\n")
    [whole] = read_text(data_folder / file, by="file")
    assert whole["text"] == (data_folder / file).read_bytes().decode()
