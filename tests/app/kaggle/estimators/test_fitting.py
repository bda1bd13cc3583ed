"""Estimators of other libraries as members: all that is fitted is fitted inside the fold, and predictions are in the terms of the spec."""

import warnings

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import mlxfp as fp
from mlxfp.app.kaggle import METRICS, ColumnSpec, cross_validate, estimator, folds, load_estimator, save_estimator, score
from mlxfp.app.kaggle.estimators import libraries
from mlxfp.app.kaggle.estimators.columns import fit_columns
from mlxfp.app.kaggle.estimators.named import ESTIMATORS, Task, known_class, make_named, needs_permission
from tests.app.kaggle.estimators.tables import COLUMNS, spec_of, table_of

SMALL = {"lightgbm": {"n_estimators": 20}, "catboost": {"iterations": 20}, "tfidf": {}, "kernel": {}}


def named(name, kind, **about):
    pytest.importorskip({"tfidf": "sklearn", "kernel": "sklearn"}.get(name, name))
    spec = spec_of(kind, **about)
    return estimator(make_named(name, Task(spec, 60), SMALL[name]), spec, seed=3)


def without(rows, *names):
    return fp.drop_columns(list(names))(rows)


@pytest.mark.parametrize("kind", ["binary", "multiclass", "ordinal", "multilabel", "regression"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_named_estimator_learns_every_kind_of_target_and_predicts_the_same_from_its_files(name, kind, tmp_path):
    target = ("y", "z") if kind == "multilabel" else ("y",)
    rows = table_of(kind, target=target)
    fit = named(name, kind, target=target)
    fitted = fit(fp.Splits(rows))
    others = without(table_of(kind, 40, seed=1, target=target), *target)
    made = fitted(others)
    assert made.shape == {"multiclass": (40, 3), "ordinal": (40, 3), "multilabel": (40, 2)}.get(kind, (40,))
    assert METRICS[fit.spec.metric].better(
        METRICS[fit.spec.metric](np.stack([fp.kaggle.column_values(rows, each) for each in target], axis=1).squeeze(), fitted(rows)),
        {"binary": 0.6, "multiclass": 1.0, "ordinal": 0.4, "multilabel": 0.7, "regression": 1.6}[kind],
    )
    if made.ndim == 2 and kind != "multilabel":
        assert np.allclose(made.sum(axis=1), 1)
    save_estimator(fitted, tmp_path / "first")
    assert np.array_equal(load_estimator(tmp_path / "first")(others), made)
    save_estimator(fit(fp.Splits(rows)), tmp_path / "second")
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "second").iterdir())
    assert [name for name in files if (tmp_path / "first" / name).read_bytes() != (tmp_path / "second" / name).read_bytes()] == []


@pytest.mark.parametrize(("name", "kind", "size"), [("catboost", "regression", [1.0] * 40), ("kernel", "binary", list(range(40)))])
def test_a_library_that_cannot_fit_is_an_error_with_a_remedy(name, kind, size):
    """CatBoost refuses columns with a single value, and the kernel model a class with two rows. A blend leaves such a model out."""
    fit = named(name, kind, columns=[ColumnSpec(name="size", type="numerical")])
    rows = fp.from_table({"size": size, "y": [0.0] * 38 + [1.0] * 2})
    with pytest.raises(
        fp.errors.DataError, match=r"cannot be fitted to 40 training rows: .*\. Change .* such as model\.name=lightgbm\."
    ) as raised:
        fit(fp.Splits(rows))
    assert getattr(raised.value, "__notes__", []) == ["The rarest class is 'yes' with 2 training rows."] * (kind == "binary")


def _judged(name, rows, tmp_path):
    """Fit a named estimator to a category and a number without missing values, and return its predictions from its files."""
    columns = [ColumnSpec(name="c", type="categorical"), ColumnSpec(name="n", type="numerical")]
    about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["y"], "classes": ["0", "1"], "metric": "log_loss"}
    spec = fp.kaggle.DatasetSpec(name="x", kind="binary", columns=columns, **about)
    pytest.importorskip({"tfidf": "sklearn", "kernel": "sklearn"}.get(name, name))
    fit = estimator(make_named(name, Task(spec, 300), SMALL[name]), spec)
    save_estimator(fit(fp.Splits(rows)), tmp_path / name)
    return lambda values: load_estimator(tmp_path / name)(fp.from_table(values))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_case_a4_a_category_missing_only_in_new_rows_is_none_of_the_categories_in_training(name, tmp_path):
    table = {"c": ["aaa", "bbb", "ccc"] * 100, "n": [0.0] * 300, "y": [1, 0, 0] * 100}
    predict = _judged(name, fp.from_table(table), tmp_path)
    known = predict({"c": ["aaa", "bbb"], "n": [0.0, 0.0]})
    new = predict({"c": pa.array(["zzz", None], pa.string()), "n": [0.0, 0.0]})
    assert known[0] > known[1] + 0.3
    assert np.all((new < known[0] - 0.1) & (new > known[1] + 0.01)), (known, new)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_case_a4_a_number_missing_only_in_new_rows_is_not_0(name, tmp_path):
    table = {"c": ["a"] * 300, "n": [float(row % 3) for row in range(300)], "y": [int(row % 3 == 0) for row in range(300)]}
    predict = _judged(name, fp.from_table(table), tmp_path)
    known, new = predict({"c": ["a", "a"], "n": [0.0, 2.0]}), predict({"c": ["a"], "n": pa.array([None], pa.float64())})
    assert known[0] > known[1] + 0.3
    assert new[0] < known[0] - 0.1


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        (HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=2), "codes"),
        (ExtraTreesClassifier(5), "codes"),
        (LogisticRegression(), "sparse"),
        (GaussianNB(), "scaled"),
        (CalibratedClassifierCV(SVC(), ensemble=False, cv=2), "scaled"),
    ],
)
def test_a_model_of_scikit_learn_gets_numbers_as_it_takes_them(model, layout, tmp_path):
    fit = estimator(model, spec_of("binary"), seed=1)
    assert fit.layout == layout
    rows = table_of("binary")
    run = cross_validate(folds.kfold(60, count=3, seed=0), rows, fit, target="y")
    assert score(run.oof, METRICS["accuracy"]).overall > 0.6
    again = cross_validate(folds.kfold(60, count=3, seed=0), rows, fit, target="y")
    assert np.array_equal(run.oof.predictions, again.oof.predictions)  # the seed is that of the estimator, also of its parts
    save_estimator(run.models[0], tmp_path)
    others = without(rows, "y")
    assert np.array_equal(load_estimator(tmp_path)(others), run.models[0](others))
    assert "random_state" not in model.get_params() or model.get_params()["random_state"] is None  # the user's model is not changed


def test_nothing_is_learned_from_rows_that_validate():
    rows = table_of("binary", 60)
    marked = fp.pipe(rows, fp.map(lambda row: row | {"said": "only here", "kind": "other", "size": 1e9}), fp.load())
    seen = fp.from_table(fp.to_table(rows).slice(0, 40))
    for layout in ("codes", "scaled", "sparse"):
        columns, numbers = fit_columns(spec_of("binary"), seen, layout)
        alone = columns(seen)
        dense = numbers.toarray() if layout == "sparse" else numbers
        assert np.allclose(dense, alone.toarray() if layout == "sparse" else alone, equal_nan=True)
        unknown = columns(marked)  # words and categories that were not in training rows are nothing, not an error
        assert unknown.shape == (60, dense.shape[1])


def test_logarithms_are_learned_where_the_metric_asks_for_them():
    rows = fp.pipe(table_of("regression"), fp.map(lambda row: row | {"y": float(np.exp(row["y"]))}), fp.load())
    truth = fp.kaggle.column_values(rows, "y")
    scores = {}
    for metric in ("rmsle", "rmse"):
        made = estimator(Ridge(), spec_of("regression", metric=metric))(fp.Splits(rows))(without(rows, "y"))
        scores[metric] = METRICS["rmsle"](truth, np.maximum(made, 0))
        assert metric == "rmse" or made.min() >= 0
    assert scores["rmsle"] < scores["rmse"]
    below = fp.pipe(rows, fp.map(lambda row: row | {"y": -2.0}), fp.load())
    with pytest.raises(fp.errors.DataError, match=r"rmsle needs targets of at least 0, but 'y' contains -2\. Choose another metric"):
        estimator(Ridge(), spec_of("regression", metric="rmsle"))(fp.Splits(below))


@pytest.mark.parametrize("name", ["lightgbm", "catboost"])
def test_boosting_stops_by_rows_that_are_set_aside(name):
    pytest.importorskip(name)
    spec = spec_of("binary")
    counted = {"lightgbm": "n_estimators", "catboost": "iterations"}[name]
    fit = estimator(make_named(name, Task(spec, 200), {counted: 400, "learning_rate": 0.5}), spec, patience=3)
    run = cross_validate(folds.kfold(200, count=2, seed=0), table_of("binary", 200), fit, target="y", stopping="inner")
    model = run.models[0].targets[0].model
    rounds = {
        "lightgbm": lambda: model.best_iteration or model.current_iteration(),
        "catboost": lambda: model.model.tree_count_,
    }
    assert 0 < rounds[name]() < 200
    with pytest.raises(fp.errors.ArgumentError, match=r"LogisticRegression does not support early stopping\. Remove the argument stopping"):
        cross_validate(
            folds.kfold(60, count=2, seed=0), table_of("binary"), estimator(LogisticRegression(), spec), target="y", stopping="inner"
        )


def test_rows_weigh_as_a_column_says():
    rows = fp.from_table({"size": [0.0, 1.0, 0.0, 1.0], "y": [0.0, 0.0, 1.0, 1.0], "many": [9.0, 9.0, 1.0, 1.0]})
    spec = spec_of("binary", columns=COLUMNS[:1])
    chances = [
        estimator(LogisticRegression(), spec, weight=weight)(fp.Splits(rows))(without(rows, "y", "many")).mean()
        for weight in (None, "many")
    ]
    assert chances[0] == pytest.approx(0.5)
    assert chances[1] == pytest.approx(0.1, abs=0.02)


def test_a_class_without_training_rows_gets_no_chance_and_a_single_class_all_of_it():
    rows = fp.from_table({"size": [0.0, 1.0, 2.0, 3.0], "y": [0, 0, 2, 2]})
    spec = spec_of("multiclass", columns=COLUMNS[:1])
    chances = estimator(LogisticRegression(), spec)(fp.Splits(rows))(without(rows, "y"))
    assert chances.shape == (4, 3)
    assert (chances[:, 1] == 0).all()
    one = fp.from_table({"size": [0.0, 1.0], "y": [1, 1]})
    assert estimator(LogisticRegression(), spec)(fp.Splits(one))(without(one, "y")).tolist() == [[0, 1, 0]] * 2


@pytest.mark.parametrize(
    ("model", "kind", "error", "message"),
    [
        (
            LogisticRegression,
            "binary",
            fp.errors.ArgumentTypeError,
            r"estimator needs an unfitted scikit-learn estimator, got <class .*Create one",
        ),
        (
            Ridge(),
            "binary",
            fp.errors.ArgumentError,
            r"The targets of 'things' are binary and need a classifier, got Ridge\. Pass a classifier",
        ),
        (LogisticRegression(), "regression", fp.errors.ArgumentError, r"need a regressor, got LogisticRegression"),
        (
            RidgeClassifier(),
            "binary",
            fp.errors.ArgumentError,
            r"cannot predict probabilities\. Wrap the model: CalibratedClassifierCV\(model\)",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_it_is_fitted(model, kind, error, message):
    with pytest.raises(error, match=message):
        estimator(model, spec_of(kind))


def test_rows_without_any_value_are_refused():
    rows = fp.from_table({"said": [None, ""], "y": [0.0, 1.0]})
    with pytest.raises(fp.errors.DataError, match=r"An estimator needs training rows with values, but .* no values in the columns said"):
        estimator(LogisticRegression(), spec_of("binary", columns=COLUMNS[2:]))(fp.Splits(rows))


def test_a_column_without_values_in_a_fold_is_left_out():
    rows = fp.from_table({"size": [None, None, None, None], "kind": ["a", "b", "a", "b"], "y": [0.0, 1.0, 0.0, 1.0]})
    fitted = estimator(RandomForestRegressor(3), spec_of("regression", columns=COLUMNS[:2]))(fp.Splits(rows))
    assert fitted.columns.numbers == ()
    assert len(fitted(without(rows, "y"))) == 4


@pytest.mark.parametrize("model", [LogisticRegression(), ExtraTreesClassifier(5)])
def test_numbers_of_all_magnitudes_are_fitted_and_predicted(model):
    sizes = [10.0**power for power in range(-300, 300, 5)] + [float("inf"), None]
    rows = fp.from_table({"size": sizes, "y": [float(place % 2) for place in range(len(sizes))]})
    fitted = estimator(model, spec_of("binary", columns=COLUMNS[:1]))(fp.Splits(rows))
    assert np.isfinite(fitted(without(rows, "y"))).all()


def test_a_model_of_lightgbm_has_the_same_bytes_on_any_number_of_threads(tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    spec, rows = spec_of("binary"), table_of("binary")
    for threads in (1, 2):
        save_estimator(estimator(lightgbm.LGBMClassifier(n_estimators=3, n_jobs=threads), spec)(fp.Splits(rows)), tmp_path / str(threads))
    one, two = ((tmp_path / name / "model-1.txt").read_bytes() for name in "12")
    assert one == two
    assert len(load_estimator(tmp_path / "1")(without(rows, "y"))) == 60


def test_small_tables_are_fitted_by_one_thread(monkeypatch):
    lightgbm = pytest.importorskip("lightgbm")
    monkeypatch.setattr(libraries, "free_cores", lambda: (4, 8))
    assert [libraries.threads(size) for size in (0, 199_999, 200_000, 10**9)] == [1, 1, 2, 4]
    fitted = estimator(lightgbm.LGBMClassifier(n_estimators=3), spec_of("binary"))(fp.Splits(table_of("binary")))
    assert fitted.targets[0].model.params["num_threads"] == 1


def test_names_make_the_classes_of_known_packages_and_nothing_else():
    spec = spec_of("binary")
    model = make_named("sklearn.linear_model:LogisticRegression", Task(spec, 60), {"C": 3.0})
    assert isinstance(model, LogisticRegression)
    assert model.C == 3.0
    assert [needs_permission(name) for name in ("sklearn.svm:SVC", "mine:Model", "sklearnish:Model")] == [False, True, True]
    for name, message in (
        ("sklearn.utils:estimator_html_repr", "must be an estimator class"),
        ("sklearn.svm._base:BaseSVC", "names a private part of sklearn"),
        ("sklearn.nowhere:SVC", "the module 'sklearn.nowhere' cannot be imported"),
    ):
        with pytest.raises(fp.errors.ConfigError, match=message):
            known_class(name)
    with pytest.raises(fp.errors.UnknownNameError, match=r"No part of the module 'sklearn\.svm' is named 'SVX'\. Did you mean 'SVR'"):
        known_class("sklearn.svm:SVX")
    with pytest.raises(fp.errors.ConfigError, match=r"model\.arguments do not fit model\.name=tfidf: .*unexpected keyword argument 'X'"):
        make_named("tfidf", Task(spec, 60), {"X": 1})


def test_lightgbm_refuses_parameters_that_it_would_ignore():
    pytest.importorskip("lightgbm")
    spec = spec_of("binary")
    with pytest.raises(fp.errors.ConfigError, match=r"model\.arguments: LightGBM has no parameter 'num_leavs'\. Did you mean 'num_leaves'"):
        make_named("lightgbm", Task(spec, 60), {"num_leavs": 3})
    assert make_named("lightgbm", Task(spec, 60), {"lambda_l1": 3.0, "max_bin": 15}).get_params()["max_bin"] == 15


@pytest.mark.parametrize("factor", [1e-3, 1e6])
def test_a_kernel_machine_takes_values_of_any_scale(factor):
    rows = table_of("regression")
    scaled = fp.map(lambda row: row | {"y": row["y"] * factor})(rows)
    fit = named("kernel", "regression")
    plain, large = (fit(fp.Splits(each))(without(each, "y")) for each in (rows, scaled))
    assert large == pytest.approx(plain * factor, rel=0.02)  # the solver stops at a tolerance


def test_a_kernel_machine_sees_rings_that_trees_do_not():
    random = np.random.default_rng(0)
    numbers = random.normal(size=(600, 8))
    inside = (numbers**2).sum(axis=1) < 7.3
    columns = [ColumnSpec(name=f"n{place}", type="numerical") for place in range(8)]
    spec = spec_of("binary", columns=columns)
    rows = fp.from_table({**{column.name: numbers[:, place] for place, column in enumerate(columns)}, "y": inside.astype(float)})
    split = folds.stratified(inside.astype(int), count=3, seed=0)
    found = {
        name: score(
            cross_validate(split, rows, estimator(make_named(name, Task(spec, 400), {}), spec), target="y").oof, METRICS["accuracy"]
        )
        for name in ("kernel", "lightgbm")
    }
    assert found["kernel"].overall > found["lightgbm"].overall + 0.05, found


@pytest.mark.parametrize("name", ["tfidf", "lightgbm"])
def test_dates_in_another_form_give_the_same_predictions(name, tmp_path):
    """A linear model on words reads dates as texts, which must have one form. The model reads no column of numbers or categories."""
    columns = [ColumnSpec(name="note", type="text"), ColumnSpec(name="day", type="text")]
    days = [f"{at % 28 + 1:02}/{at % 12 + 1:02}/{2020 + at % 3}" for at in range(120)]
    rows = {"note": ["red", "blue", "green"] * 40, "day": days, "y": [float(at % 12 < 6) for at in range(120)]}
    fitted = named(name, "binary", columns=columns)(fp.Splits(fp.from_table(rows)))
    save_estimator(fitted, tmp_path / "model")
    new = {"note": ["red", "white"], "day": ["03/05/2021", "17/11/2022"]}
    expected = load_estimator(tmp_path / "model")(fp.from_table(new))
    assert np.array_equal(fitted(fp.from_table(new)), expected)
    for form in (["2021-05-03", "2022-11-17"], ["3 May 2021", "2022-11-17 00:00"]):
        assert np.array_equal(fitted(fp.from_table({**new, "day": form})), expected)


def test_the_probabilities_of_a_kernel_machine_for_many_classes_have_a_low_log_loss():
    """Probabilities of scikit-learn's CalibratedClassifierCV have the log loss 0.23 here."""
    numbers, labels = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    numbers, labels = numbers[:900], labels[:900]
    columns = [ColumnSpec(name=f"pixel{place}", type="numerical") for place in range(64)]
    spec = spec_of("multiclass", columns=columns, classes=list("0123456789"))
    rows = fp.from_table({**{column.name: numbers[:, place] for place, column in enumerate(columns)}, "y": labels.astype(float)})
    split = folds.stratified(labels, count=3, seed=0)
    result = cross_validate(split, rows, estimator(make_named("kernel", Task(spec, 600), {}), spec), target="y").oof
    assert score(result, METRICS["log_loss"]).overall < 0.15
    assert score(result, METRICS["accuracy"]).overall > 0.94


@pytest.mark.parametrize("count", [4, 25])
def test_a_kernel_machine_learns_few_and_many_classes_and_refuses_a_class_with_one_row(count):
    """With more than 20 classes, the probabilities come from an output per class instead of an output per pair."""
    labels = np.arange(count).repeat(12).astype(float)
    numbers = labels + np.random.default_rng(0).normal(size=len(labels)) / 20
    fit = named("kernel", "multiclass", columns=[ColumnSpec(name="size", type="numerical")], classes=[f"c{each}" for each in range(count)])
    predictions = fit(fp.Splits(fp.from_table({"size": numbers, "y": labels})))(fp.from_table({"size": np.arange(count, dtype=float)}))
    assert predictions.shape == (count, count)
    assert predictions.argmax(axis=1).tolist() == list(range(count))
    with pytest.raises(fp.errors.DataError, match=r"cannot be fitted to \d+ training rows"):
        fit(fp.Splits(fp.from_table({"size": numbers[:-11], "y": labels[:-11]})))


@pytest.mark.parametrize("name", ["lightgbm", "catboost"])
@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
def test_boosted_trees_stop_in_time_and_keep_the_finished_trees(name, kind, tmp_path):
    """A fit without time has one round, and predicts the same from files."""
    pytest.importorskip(name)
    rows, spec = table_of(kind), spec_of(kind)
    model = make_named(name, Task(spec, 60), {"iterations" if name == "catboost" else "n_estimators": 100_000})
    with pytest.warns(RuntimeWarning, match="The time limit ended a fit of boosted trees"):
        fitted = evolve(estimator(model, spec), seconds=0.0)(fp.Splits(rows))
    new = fp.drop_columns(["y"])(table_of(kind, seed=1))
    assert np.isfinite(fitted(new)).all()
    save_estimator(fitted, tmp_path)
    assert np.array_equal(load_estimator(tmp_path)(new), fitted(new))
    assert sum(path.stat().st_size for path in tmp_path.glob("model-1*")) < 100_000


def test_trees_can_leave_out_texts_and_keep_dates():
    """A date in a text column is no text."""
    columns = [*COLUMNS, ColumnSpec(name="day", type="text")]
    rows = fp.from_table({**fp.to_table(table_of("binary")).to_pydict(), "day": [f"2024-01-{at % 28 + 1:02}" for at in range(60)]})
    fitted = evolve(estimator(DecisionTreeClassifier(), spec_of("binary", columns=columns)), reads_texts=False)(fp.Splits(rows))
    assert (fitted.columns.texts, fitted.columns.dates) == ((), (("day", "year"),))
    assert fitted(rows).shape == (60,)


@pytest.mark.parametrize("model", [Ridge(1.0), DecisionTreeRegressor(max_depth=3)])
def test_whole_numbers_are_numbers_and_categories(model, tmp_path):
    """Saved estimators read the numbers in the same way. A new number is an unknown category."""
    rng = np.random.default_rng(0)
    shops, sizes = rng.integers(0, 30, 200), rng.random(200)
    rows = fp.from_table({"shop": shops + 7000, "size": sizes, "y": np.sin(shops * 9.0)})
    spec = spec_of("regression", columns=[ColumnSpec(name=name, type="numerical") for name in ("shop", "size")])
    fitted = evolve(estimator(model, spec), reads_codes=True)(fp.Splits(rows))
    assert fitted.columns.numbers == ("shop", "size")
    assert [(coded.column, len(coded.values)) for coded in fitted.columns.categories] == [("shop", 30)]
    new = fp.from_table({"shop": [*shops[:20] + 7000, 1], "size": sizes[:21]})
    save_estimator(fitted, tmp_path)
    assert np.array_equal(load_estimator(tmp_path)(new), fitted(new))
    plain = estimator(model, spec)(fp.Splits(rows))
    assert plain.columns.categories == ()


def test_an_unfinished_fit_is_no_warning():
    """The score of the validation rows shows what an unfinished fit is worth."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator(LogisticRegression(max_iter=1), spec_of("binary"))(fp.Splits(table_of("binary")))
