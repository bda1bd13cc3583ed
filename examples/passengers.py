"""A made-up passenger list with the columns of Kaggle's Titanic file, for runs without that file.

Every passenger is drawn on its own: class, sex and age first, then family, fare, cabin and port given those. Whether one survives is a coin
whose odds depend on sex, class, age and family size, with the signs known from the real ship; so a model can learn something, and no
model can be right about everyone. Ages, cabins and ports are missing about as often as in the real file.
"""

import csv
from pathlib import Path

import numpy as np

COLUMNS = ["PassengerId", "Survived", "Pclass", "Name", "Sex", "Age", "SibSp", "Parch", "Ticket", "Fare", "Cabin", "Embarked"]
_SURNAMES = (
    "Abbott",
    "Baker",
    "Carter",
    "Dahl",
    "Eklund",
    "Fox",
    "Goldsmith",
    "Hansen",
    "Ivanov",
    "Johnson",
    "Kelly",
    "Larsson",
    "Moran",
    "Novak",
    "Olsen",
    "Palmer",
    "Rice",
    "Smith",
)
_MEN = ("Albert", "Charles", "Edward", "Frank", "George", "Henry", "James", "John", "Karl", "Patrick", "Thomas", "William")
_WOMEN = ("Alice", "Anna", "Bertha", "Catherine", "Elizabeth", "Emma", "Florence", "Ida", "Kate", "Margaret", "Mary", "Ruth")


def write_passengers(path: Path, *, count: int, seed: int) -> None:
    """Write a CSV file of `count` passengers; the same seed gives the same file."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(_passenger(number, rng) for number in range(1, count + 1))


def _passenger(number: int, rng: np.random.Generator) -> dict[str, object]:
    pclass = int(rng.choice([1, 2, 3], p=[0.24, 0.21, 0.55]))
    male = bool(rng.random() < (0.55, 0.59, 0.71)[pclass - 1])
    age = float(np.clip(rng.normal((38, 30, 25)[pclass - 1], 14), 0.5, 80).round(1))
    siblings, parents = int(rng.poisson(0.6)), int(rng.poisson(0.5))
    fare = float(np.exp(rng.normal((4.1, 2.9, 2.3)[pclass - 1], 0.5)) * (1 + 0.3 * (siblings + parents)))
    family = siblings + parents
    log_odds = (-1.5 if male else 2.0) + (1.0, 0.3, -2.6)[pclass - 1] + (2.8 if age < 13 else 0) - (2.2 if family > 2 else 0)
    title = ("Master" if age < 13 else "Mr") if male else ("Miss" if age < 20 or siblings == 0 else "Mrs")
    cabin = f"{'ABCDE'[rng.integers(5)]}{rng.integers(1, 120)}" if rng.random() < (0.8, 0.1, 0.03)[pclass - 1] else ""
    return {
        "PassengerId": number,
        "Survived": int(rng.random() < 1 / (1 + np.exp(-log_odds))),
        "Pclass": pclass,
        "Name": f"{rng.choice(_SURNAMES)}, {title}. {rng.choice(_MEN if male else _WOMEN)}",
        "Sex": "male" if male else "female",
        "Age": "" if rng.random() < 0.2 else age,
        "SibSp": siblings,
        "Parch": parents,
        "Ticket": int(rng.integers(10_000, 400_000)),
        "Fare": round(fare, 4),
        "Cabin": cabin,
        "Embarked": "" if rng.random() < 0.003 else str(rng.choice(["S", "C", "Q"], p=[0.72, 0.19, 0.09])),
    }
