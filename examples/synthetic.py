"""Synthetic data in the file formats of well-known data sets. The examples run on synthetic data without a download.

The same seed writes the same file. Accuracies on synthetic files say nothing about the real data. A digit is seven segments plus noise, a
review is a template filled with a few words, and both are easy to learn.
"""

import csv
import gzip
from pathlib import Path

import numpy as np

_SURNAMES = ("Abbott", "Baker", "Carter", "Dahl", "Fox", "Hansen", "Ivanov", "Kelly", "Moran", "Novak", "Olsen", "Palmer", "Rice", "Smith")
_MEN = ("Albert", "Charles", "Edward", "Frank", "George", "Henry", "James", "John", "Karl", "Patrick", "Thomas", "William")
_WOMEN = ("Alice", "Anna", "Bertha", "Emma", "Florence", "Ida", "Kate", "Margaret", "Mary", "Ruth")
_SEGMENTS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcfgd")
_PLACES = {  # rows and columns of each segment in a field of 17 by 11 pixels; `g` is the middle segment
    "a": (0, 3, 0, 11),
    "b": (0, 10, 8, 11),
    "c": (7, 17, 8, 11),
    "d": (14, 17, 0, 11),
    "e": (7, 17, 0, 3),
    "f": (0, 10, 0, 3),
    "g": (7, 10, 0, 11),
}
_SHAPES = ("cross", "disc", "frame", "stripes")
_PRAISE = ("moving", "funny", "clever", "gripping", "wonderful", "charming")
_BLAME = ("dull", "tedious", "clumsy", "shallow", "lifeless", "dreadful")
_REVIEWS = (
    "a {} and {} film",
    "the {} story and the {} dialogue stay in the mind",
    "{} from the first scene , {} until the last",
    "the director has made a {} , {} picture",
    "it is {} , and the cast is {}",
)


def write_passengers(path: Path, *, count: int, seed: int) -> None:
    """Write a CSV file of `count` passengers, with the columns of Kaggle's Titanic file.

    Passengers are independent. Class, sex and age are drawn first, and family, fare, cabin and port depend on class, sex and age. Survival
    is a Bernoulli draw with log-odds from sex, class, age and family size. The signs are those of the real data. Ages, cabins and ports are
    missing about as often as in the real file.
    """
    rng = np.random.default_rng(seed)
    passengers = [_passenger(number, rng) for number in range(1, count + 1)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, passengers[0])
        writer.writeheader()
        writer.writerows(passengers)


def write_photographs(folder: Path, *, count: int, seed: int) -> None:
    """Write `count` JPEG files of 32 by 32 pixels in class folders: coloured shapes with noise on a background of another colour."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    for number in range(count):
        name = _SHAPES[number % len(_SHAPES)]
        (folder / name).mkdir(exist_ok=True)
        Image.fromarray(_photograph(name, rng)).save(folder / name / f"{number:04}.jpg", quality=90)


def write_digits(folder: Path, *, count: int, seed: int) -> None:
    """Write `count` grey images of 28 by 28 pixels and the labels, with the format and the file names of MNIST's test set."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count).astype(np.uint8)
    images = np.stack([_digit(label, rng) for label in labels.tolist()])
    for name, array in (("t10k-images-idx3-ubyte.gz", images), ("t10k-labels-idx1-ubyte.gz", labels)):
        header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
        (folder / name).write_bytes(gzip.compress(header + array.tobytes(), compresslevel=1))


def write_reviews(folder: Path, *, count: int, seed: int) -> None:
    """Write train.tsv, dev.tsv and test.tsv in the format of SST-2: a review, a tab, and the label, 1 for praise."""
    rng = np.random.default_rng(seed)
    for name, rows in (("train", count), ("dev", count // 4), ("test", count // 4)):
        (folder / f"{name}.tsv").write_text("".join(_review(rng) for _ in range(rows)), encoding="utf-8")


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


def _photograph(name: str, rng: np.random.Generator) -> np.ndarray:
    """Draw a shape at a random position of an image, uint8[32, 32, 3]."""
    rows, columns = np.mgrid[:32, :32] - rng.integers(11, 21, 2)[:, None, None]
    radius = rng.integers(6, 11)
    far = np.maximum(abs(rows), abs(columns))
    inside = {
        "cross": (far <= radius) & (np.minimum(abs(rows), abs(columns)) < radius / 3),
        "disc": rows**2 + columns**2 <= radius**2,
        "frame": (far <= radius) & (far > radius - 3),
        "stripes": (far <= radius) & (rows % 6 < 3),
    }[name]
    colors = rng.integers(0, 256, (2, 3))
    picture = np.where(inside[..., None], *colors) + rng.normal(0, 20, (32, 32, 3))
    return picture.clip(0, 255).astype(np.uint8)


def _digit(label: int, rng: np.random.Generator) -> np.ndarray:
    image = rng.integers(60, size=(28, 28))
    top, left = rng.integers((12, 18))
    for segment in _SEGMENTS[label]:
        first, last, begin, end = _PLACES[segment]
        image[top + first : top + last, left + begin : left + end] = rng.integers(150, 256)
    return image.astype(np.uint8)


def _review(rng: np.random.Generator) -> str:
    label = int(rng.integers(2))
    words = rng.choice(_PRAISE if label else _BLAME, size=2, replace=False)
    return f"{str(rng.choice(_REVIEWS)).format(*words)}\t{label}\n"
