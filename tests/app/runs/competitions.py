"""Competition folders that nobody has seen: small, and made for one test."""

import csv
from pathlib import Path

import mlxfp as fp

SMALL = (
    *("model.name=encoder", "text.vocab_size=300", "training.epochs=1", "validation.folds=2"),
    *("observers.progress=false", "observers.plots=false"),
)
WORDS = ("red", "green", "blue", "cat", "dog", "fish")


def competition(folder, train, test=None, sample=None, spec=None):
    """Write a competition's files of lists of rows, and its spec if there is one; return the folder."""
    folder.mkdir()
    for name, rows in (("train.csv", train), ("test.csv", test), ("sample_submission.csv", sample)):
        if rows is not None:
            write(folder / name, rows)
    if spec is not None:
        (folder / "spec.yaml").write_text(spec)
    return folder


def write(path, rows):
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def texts(count, start=0):
    """Rows with an id and a text, that differ."""
    return [{"id": f"{place:04}", "text": f"{WORDS[place % 6]} {WORDS[place * 7 // 3 % 6]}"} for place in range(start, start + count)]


def configured(data, *overrides):
    spec = [f"data.spec={data}/spec.yaml"] if (data / "spec.yaml").is_file() else []
    changes = [*SMALL, *spec, f"data.path={data}", f"output={data.parent}", "name=out", *overrides]
    return fp.runs.load_config(overrides=changes).config


def table(path):
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def all_files(folder):
    """Return the content of every file in a folder by path, to show that a refused command changes nothing."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
