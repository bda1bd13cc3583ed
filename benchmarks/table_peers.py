"""Programs that `benchmarks.tables` compares with mlxfp. Run as a script, so that another Python with other packages can run the file."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

_WORDS, _COMPONENTS = 5000, 16  # maximum number of word counts of a text column, and number of its components
_TEXT = 0.5  # a column of strings with a larger share of distinct values is read as text


def main(program: str, folder: str, out: str, seconds: str, task: str) -> None:
    """Train on `train.csv`, and write the answers for `test.csv`."""
    about = json.loads(task)
    strings = {about["target"]: str} if about["classes"] else {}
    train, test = pd.read_csv(Path(folder, "train.csv"), dtype=strings), pd.read_csv(Path(folder, "test.csv"))
    identifier = about["id"] or "id"
    ids = test[identifier]
    train, test = (table.drop(columns=identifier, errors="ignore") for table in (train, test))
    answers = PROGRAMS[program](train, test, about, float(seconds))
    pd.DataFrame({identifier: ids, about["target"]: answers}).to_csv(out, index=False)


def _lightgbm(train: Any, test: Any, about: dict[str, Any], seconds: float) -> Any:
    """LightGBM with the default settings, native categories, and components of word counts for texts."""
    import lightgbm

    texts = _texts(train, test)
    target, columns = train[about["target"]], [name for name in test.columns if name not in texts]
    known, new = train[columns].copy(), test[columns].copy()
    for name in columns:
        if not pd.api.types.is_numeric_dtype(known[name]):
            values = pd.CategoricalDtype(sorted(known[name].dropna().astype(str).unique()))
            known[name], new[name] = (table[name].astype(str).where(table[name].notna()).astype(values) for table in (known, new))
    for name in texts:
        parts = _components(train[name], test[name])
        for index in range(parts[0].shape[1]):
            known[f"{name} {index}"], new[f"{name} {index}"] = parts[0][:, index], parts[1][:, index]
    known.columns = new.columns = [f"c{index}" for index in range(known.shape[1])]
    model = (lightgbm.LGBMClassifier if about["classes"] else lightgbm.LGBMRegressor)(verbose=-1, random_state=0)
    return _answers(model.fit(known, target), new, about)


def _linear(train: Any, test: Any, about: dict[str, Any], seconds: float) -> Any:
    """Regularized linear model on scaled numbers, one-hot categories and word counts."""
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    texts = _texts(train, test)
    numbers = [name for name in test.columns if pd.api.types.is_numeric_dtype(train[name]) and pd.api.types.is_numeric_dtype(test[name])]
    others = [name for name in test.columns if name not in texts and name not in numbers]
    for table in (train, test):
        table[others] = table[others].astype(str)
        table[texts] = table[texts].fillna("").astype(str)
    steps: list[Any] = [
        ("numbers", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        ("others", OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=2), others),
        *((f"text {name}", TfidfVectorizer(max_features=_WORDS), name) for name in texts),
    ]
    values = Ridge(1.0) if texts else RidgeCV(np.logspace(-2, 4, 13))  # RidgeCV takes minutes on word counts
    model = LogisticRegression(max_iter=1000) if about["classes"] else values
    return _answers(make_pipeline(ColumnTransformer(steps), model).fit(train[list(test.columns)], train[about["target"]]), test, about)


def _autogluon(train: Any, test: Any, about: dict[str, Any], seconds: float) -> Any:
    """AutoGluon with medium quality in the time limit."""
    from tempfile import mkdtemp

    from autogluon.tabular import TabularPredictor  # type: ignore[import-not-found]

    metrics = {"rmse": "root_mean_squared_error", "mae": "mean_absolute_error"}
    kind = "regression" if not about["classes"] else "binary" if len(about["classes"]) == 2 else "multiclass"
    metric = metrics.get(about["metric"], about["metric"])
    predictor = TabularPredictor(about["target"], problem_type=kind, eval_metric=metric, path=mkdtemp(), verbosity=1)
    predictor.fit(train, time_limit=seconds, presets="medium_quality")
    if about["metric"] == "roc_auc":
        return predictor.predict_proba(test)[about["classes"][1]]
    return predictor.predict(test)


def _answers(model: Any, rows: Any, about: dict[str, Any]) -> Any:
    if about["metric"] == "roc_auc":
        return model.predict_proba(rows)[:, list(map(str, model.classes_)).index(about["classes"][1])]
    return model.predict(rows)


def _texts(train: Any, test: Any) -> list[str]:
    """Return the names of the columns with mostly distinct strings."""
    strings = [name for name in test.columns if not pd.api.types.is_numeric_dtype(train[name]) and train[name].notna().any()]
    return [name for name in strings if train[name].nunique() > _TEXT * train[name].notna().sum()]


def _components(known: Any, new: Any) -> tuple[Any, Any]:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(max_features=_WORDS)
    counts = words.fit_transform(known.fillna("").astype(str))
    reduce = TruncatedSVD(min(_COMPONENTS, counts.shape[1] - 1), random_state=0)
    return reduce.fit_transform(counts), reduce.transform(words.transform(new.fillna("").astype(str)))


PROGRAMS = {"lightgbm": _lightgbm, "linear": _linear, "autogluon": _autogluon}

if __name__ == "__main__":
    main(*sys.argv[1:])
