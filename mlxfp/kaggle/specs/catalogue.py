"""The data sets that are known, and those that a folder holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from mlxfp.core.checks import check_choice, check_types
from mlxfp.core.errors import DataError, MissingFileError
from mlxfp.kaggle.specs.house_prices import HOUSE_PRICES
from mlxfp.kaggle.specs.inferring import infer_spec, is_train_file
from mlxfp.kaggle.specs.spec_files import is_spec_file, load_spec
from mlxfp.kaggle.specs.specs import ColumnSpec, DatasetSpec, FileSpec, Kind, SubmissionSpec
from mlxfp.settings.registries import Registry

_TITANIC = DatasetSpec(
    name="titanic",
    kind="binary",
    train=FileSpec(name="train.csv", sha256="7d118fef8b6ccf7f81111877bc388536f7b1e498a655e3d649d19aaa010e9f6f", rows=891),
    test=FileSpec(name="test.csv", sha256="56023b9948236f3c7a1c9448fcf418b283e109ef177fa8c7e069158dd7dd52b2", rows=418),
    sample=FileSpec(name="gender_submission.csv", sha256="7a262a7f4cb807f53911dccc84257ed3976b21b7b50ffc468b58446bff8bb6a4", rows=418),
    id="PassengerId",
    target=["Survived"],
    classes=["0", "1"],
    columns=[
        ColumnSpec(name="Pclass", type="categorical", title="class", values={"1": "first", "2": "second", "3": "third"}),
        ColumnSpec(name="Name", type="text"),
        ColumnSpec(name="Sex", type="categorical"),
        ColumnSpec(name="Age", type="numerical"),
        ColumnSpec(name="SibSp", type="numerical", title="sibling and spouse count", absent=["0"]),
        ColumnSpec(name="Parch", type="numerical", title="parent and child count", absent=["0"]),
        ColumnSpec(name="Ticket", type="text"),
        ColumnSpec(name="Fare", type="numerical"),
        ColumnSpec(name="Cabin", type="text"),
        ColumnSpec(name="Embarked", type="categorical", title="port", values={"C": "Cherbourg", "Q": "Queenstown", "S": "Southampton"}),
    ],
    metric="accuracy",
    submission=SubmissionSpec(columns=["PassengerId", "Survived"], spelling="integer"),
)

_DISASTER_TWEETS = DatasetSpec(
    name="disaster_tweets",
    kind="binary",
    train=FileSpec(name="train.csv", rows=7613),
    test=FileSpec(name="test.csv", rows=3263),
    sample=FileSpec(name="sample_submission.csv", rows=3263),
    id="id",
    target=["target"],
    classes=["0", "1"],
    columns=[
        ColumnSpec(name="keyword", type="text"),
        ColumnSpec(name="location", type="text"),
        ColumnSpec(name="text", type="text", title="tweet"),
    ],
    metric="f1",
    submission=SubmissionSpec(columns=["id", "target"], spelling="integer"),
)

_SPACESHIP_TITANIC = DatasetSpec(
    name="spaceship_titanic",
    kind="binary",
    train=FileSpec(name="train.csv", rows=8693),
    test=FileSpec(name="test.csv", rows=4277),
    sample=FileSpec(name="sample_submission.csv", rows=4277),
    id="PassengerId",
    target=["Transported"],
    classes=["False", "True"],
    columns=[
        ColumnSpec(name="HomePlanet", type="categorical"),
        ColumnSpec(name="CryoSleep", type="categorical", values={"False": "no", "True": "yes"}),
        ColumnSpec(name="Cabin", type="text"),
        ColumnSpec(name="Destination", type="categorical"),
        ColumnSpec(name="Age", type="numerical"),
        ColumnSpec(name="VIP", type="categorical", values={"False": "no", "True": "yes"}),
        ColumnSpec(name="RoomService", type="numerical", title="room service bill"),
        ColumnSpec(name="FoodCourt", type="numerical", title="food court bill"),
        ColumnSpec(name="ShoppingMall", type="numerical", title="shopping mall bill"),
        ColumnSpec(name="Spa", type="numerical", title="spa bill"),
        ColumnSpec(name="VRDeck", type="numerical", title="virtual reality deck bill"),
        ColumnSpec(name="Name", type="text"),
    ],
    metric="accuracy",
    submission=SubmissionSpec(columns=["PassengerId", "Transported"], spelling="boolean"),
)

SPECS: Registry[DatasetSpec] = Registry(
    "data set", {spec.name: spec for spec in (_TITANIC, HOUSE_PRICES, _DISASTER_TWEETS, _SPACESHIP_TITANIC)}
)


def scan(folder: str | Path) -> Registry[DatasetSpec]:
    r"""Find the data sets in a folder: spec files in it, and folders of competitions right below it.

    A folder of a competition is one with a train file; its name is that of the data set. Its spec is what a file `spec.yaml`, `spec.yml`
    or `spec.json` in it says, or else what `infer_spec` proposes. In `folder` itself, every YAML or JSON file is a spec. Raises
    `DataError` for two of one name, and for a folder whose target cannot be told, so that nothing is left out silently.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Path(folder, "cats").mkdir()
    ...     _ = Path(folder, "cats", "train.csv").write_text("id,age,purrs\n1,3,True\n2,,False\n")
    ...     _ = Path(folder, "cats", "test.csv").write_text("id,age\n4,8\n")
    ...     found = scan(folder)
    >>> found, found["cats"].target
    (Registry of 1 data sets: cats, ('purrs',))

    See also: `SPECS`, those that are known; `SPECS | scan(folder)` has both.
    """
    check_types((str, Path), folder=folder)
    if not Path(folder).is_dir():
        raise MissingFileError(f"There is no folder at {str(folder)!r}. Give one that holds folders of competitions, or spec files.")
    found: dict[str, DatasetSpec] = {}
    for path in sorted(Path(folder).iterdir()):
        spec = _look(path)
        if spec is not None and spec.name in found:
            raise DataError(f"Two data sets in {str(folder)!r} are named {spec.name!r}; {path.name!r} is the second. Rename one of them.")
        found |= {} if spec is None else {spec.name: spec}
    return Registry("data set", found)


def find(specs: Mapping[str, DatasetSpec], *, kind: Kind) -> Registry[DatasetSpec]:
    """Choose the data sets of one kind.

    >>> find(SPECS, kind="regression")
    Registry of 1 data sets: house_prices
    """
    check_types(Mapping, specs=specs)
    check_choice(get_args(Kind), kind=kind)
    return Registry("data set", {name: spec for name, spec in specs.items() if spec.kind == kind})


def _look(path: Path) -> DatasetSpec | None:
    if path.is_file():
        return load_spec(path) if is_spec_file(path) else None
    files = sorted(path.iterdir()) if path.is_dir() else []
    own = [file for file in files if file.stem == "spec" and is_spec_file(file)]
    if own:
        return load_spec(own[0])
    try:
        return infer_spec(path) if any(map(is_train_file, files)) else None
    except ValueError as error:
        raise DataError(f"No spec can be told from {str(path)!r}: {error} Or write it to spec.yaml in that folder.") from error


def named_spec(name: str) -> DatasetSpec:
    """Return the known spec of this name, or read it from a YAML or JSON file. A file that is there goes first.

    Raises `UnknownNameError` for a name that is not known, `MissingFileError` for a path without a file, and `ConfigError` for a file
    with mistakes.

    >>> named_spec("titanic").target
    ('Survived',)
    """
    return load_spec(name) if Path(name).is_file() or Path(name).suffix else SPECS[name]
