"""Real files are read whole, with the right values in the right places, previewed and batched."""

from pathlib import Path
from typing import Any

import pytest

import mlxfp as fp
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
def test_real_tables(data_folder: Path, file: str, count: int, place: int, expected: dict[str, Any]):
    rows = list(blocked(fp.read_csv(data_folder / file), 4096))
    assert len(rows) == count
    assert expected.items() <= rows[place].items()
    assert rows == list(fp.read_csv(data_folder / file))


@pytest.mark.parametrize(("file", "count"), [("train.tsv", 6920), ("dev.tsv", 872), ("test.tsv", 1821)])
def test_real_sentences(data_folder: Path, file: str, count: int):
    dataset = fp.read_csv(data_folder / "sst2" / file, delimiter="\t", quote=None, columns=["text", "label"])
    rows = list(dataset)
    assert len(rows) == count
    assert {row["label"] for row in rows} == {0, 1}
    lines = (data_folder / "sst2" / file).read_text().splitlines()
    assert [f"{row['text']}\t{row['label']}" for row in rows] == lines


@pytest.mark.parametrize(
    ("file", "count", "first"),
    [("tinyshakespeare/input.txt", 40_000, "First Citizen:"), ("wikitext2/valid.txt", 3_760, " ")],
)
def test_real_text(data_folder: Path, file: str, count: int, first: str):
    rows = [row["text"] for row in fp.read_text(data_folder / file)]
    assert len(rows) == count
    assert rows[0] == first
    assert rows == (data_folder / file).read_bytes().decode().removesuffix("\n").split("\n")
    [whole] = fp.read_text(data_folder / file, by="file")
    assert whole["text"] == (data_folder / file).read_bytes().decode()


def table(folder: Path, tokenizer: fp.Tokenizer, pattern: str, label: str) -> fp.Dataset[Any]:
    collator = fp.collators.text(pad_id=tokenizer.pad_id, label=label, pad_multiple=32)
    return fp.pipe(
        fp.read_csv(folder / "train.csv"),
        fp.template(pattern),
        fp.tokenize(tokenizer),
        fp.shuffle(seed=0),
        fp.batch(32),
        fp.collate(collator),
    )


def language(file: Path, tokenizer: fp.Tokenizer) -> fp.Dataset[Any]:
    return fp.pipe(
        fp.read_text(file),
        fp.tokenize(tokenizer, special=False),
        fp.windows(65, stride=64, separator=tokenizer.sep_id),
        fp.batch(16),
        fp.collate(fp.collators.causal(pad_id=tokenizer.pad_id)),
    )


# Of each data set a pipeline to batches, how many rows come out (None: too many to count), and what its preview shows.
PIPELINES: dict[str, tuple[Any, int | None, str]] = {
    "titanic": (
        lambda folder, bert: table(folder, bert, "A {Sex} aged {Age} paid {Fare:.2f}, embarked at {Embarked}.", "Survived"),
        891,
        "decoded  'a ",
    ),
    "house_prices": (
        lambda folder, bert: table(
            folder, bert, "In {Neighborhood}, built {YearBuilt}, {1stFlrSF} square feet, alley {Alley}.", "SalePrice"
        ),
        1460,
        "square feet",
    ),
    "sst2": (
        lambda folder, bert: fp.pipe(
            fp.read_csv(folder / "dev.tsv", delimiter="\t", quote=None, columns=["text", "label"]),
            fp.tokenize(bert, max_length=48),
            fp.batch(32),
            fp.collate(fp.collators.text(pad_id=bert.pad_id, label="label", classes=2)),
        ),
        872,
        "decoded  'one long string of cliches",
    ),
    "wikitext2": (lambda folder, bert: language(folder / "valid.txt", bert), None, "homarus"),
    "tinyshakespeare": (lambda folder, bert: language(folder / "input.txt", bert), None, "first citizen"),
    "cifar10": (
        lambda folder, bert: fp.pipe(
            fp.read_images(folder), fp.shuffle(seed=0), fp.batch(25), fp.collate(fp.collators.vision(size=(32, 32), label="label"))
        ),
        300,
        "float32[32, 32, 3]",
    ),
    "speech": (
        lambda folder, bert: fp.pipe(
            fp.read_audio(folder),
            fp.map(lambda row: {"waveform": row["waveform"], "digit": int(row["path"][0])}),
            fp.batch(16),
            fp.collate(fp.collators.audio(label="digit")),
        ),
        150,
        "waveforms float32[16, ",
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_every_real_data_set_is_read_previewed_and_batched(data_folder: Path, name: str):
    for needed in (name, "tokenizers/bert-base-uncased"):
        if not (data_folder / needed).exists():
            pytest.skip(f"the folder of real data has no {needed}")
    make, count, shown = PIPELINES[name]
    tokenizer = fp.load_tokenizer(data_folder / "tokenizers/bert-base-uncased")
    batches = make(data_folder / name, tokenizer)
    told = fp.inspect.preview(batches, count=1, tokenizer=tokenizer)
    assert told.startswith("batch 0: ")
    assert shown in told.lower(), told
    sizes = [len(next(iter(each.values()))) for each in batches]
    assert len(set(sizes[:-1])) == 1
    assert count in (None, sum(sizes))
