"""Prediction and export with the models of a finished run."""

import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from shutil import copyfile, copytree
from typing import Any

import pyarrow.compute as pc
from attrs import evolve

from mlxfp import Dataset, from_table, functional, length, to_table
from mlxfp.app.kaggle.specs.cells import not_numbers
from mlxfp.app.kaggle.specs.reading import column_names, location, read_part, read_strings
from mlxfp.app.kaggle.specs.spec_files import load_spec
from mlxfp.app.kaggle.specs.specs import DatasetSpec, FileSpec
from mlxfp.app.kaggle.validation.differences import unseen_values
from mlxfp.app.kaggle.validation.scoring import Numbers
from mlxfp.app.kaggle.validation.suspicious_columns import number_code
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.files import read_json, write_json
from mlxfp.app.run_folders.folders import FoldFolder
from mlxfp.app.runs.auto.results import has_members, read_choice
from mlxfp.app.runs.file_runs import MODEL_FOLDER, predict_files
from mlxfp.app.runs.folding import load_fold, load_predictor
from mlxfp.app.runs.from_config.planning import file_model_in, models_in
from mlxfp.app.runs.outcomes import combine, ids_of, prediction_columns, target_columns
from mlxfp.app.runs.own_parts import Code
from mlxfp.app.runs.plans import Models
from mlxfp.app.runs.quickstart import budget
from mlxfp.app.tasks.objectives import Predictor
from mlxfp.models import save
from mlxfp.support.checks import check_columns
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError, listed, suggest_path


def predict(folder: str | PathLike[str], path: str | PathLike[str], *, probabilities: bool = True, code: Code = None) -> dict[str, Any]:
    """Predict the rows of a file with the ensemble of a finished run. Return a dictionary of columns.

    The file needs the columns of the test file. The first column of the result is the id. Without an id, the first column is `row`: the
    row number, starting at 0. A classification predicts the probability of every class, in columns named like the classes. With two
    classes, there is only the column of the second class. If the run tuned a threshold, this column holds 1 for the second class, else 0. A
    regression predicts numbers in the column `prediction`. With `probabilities=False`, the result has a column of class names for each
    target. The argument `code` is explained in `run`.

    A `RuntimeWarning` names categories that the train file of the run does not have, dates in another order than in the train file, or a
    changed train file.

    Raises `MissingFileError` for a folder without a run and for a missing file, and `DataError` for an unfinished run.

    >>> import mlxfp as fp
    >>> fp.runs.predict("no such folder", "test.csv")
    Traceback (most recent call last):
    mlxfp.support.errors.MissingFileError: 'no such folder' is not the folder of a run: config.yaml is missing. ...
    """
    run, file = Path(folder), Path(path)
    settings, folds = finished(run)
    if settings["task"] in ("images", "audio"):
        classes = tuple(read_json(folds[0] / folders.RECIPE)["classes"])
        columns = predict_files(file_model_in(run, classes, code), folds[0], file)
        return columns if probabilities else {name: columns[name] for name in columns if name not in classes or name == "class"}
    if settings["task"] == "language_model":
        raise ArgumentError(
            "A language model has no classes to predict. Load the model with fp.models.load("
            f"{str(folds[0] / MODEL_FOLDER)!r}) and generate text with fp.models.generate."
        )
    spec = load_spec(run / folders.SPEC)
    if file.is_dir():
        inside = next((file / part.name for part in (spec.test, spec.train) if part is not None and (file / part.name).is_file()), None)
        example = "" if inside is None else f", such as {str(inside)!r}"
        raise MissingFileError(f"{str(file)!r} is a folder. Give a file with the columns of the test file{example}.")
    if not file.is_file():
        raise MissingFileError(f"There is no file {str(file)!r}.{suggest_path(file)} Give a file with the columns of the test file.")
    present, needed = column_names(file, encoding=spec.encoding), [column.name for column in spec.columns]
    if needed and len(present) > 1 and {*present} <= {spec.id, *spec.target, *spec.outputs}:
        raise DataError(
            f"{str(file)!r} has no columns to predict from, only {listed(map(repr, present))}, like a sample submission. Give a file with "
            f"the columns of the test file: {listed(map(repr, needed))}."
        )
    if len(present) > 1:  # for a single column, `read_part` checks the delimiter
        check_columns(needed, present, f"A prediction of {str(file)!r}")
    shown = evolve(spec, id=spec.id if spec.id in present else None, group=None, test=FileSpec(name=file.name))
    try:
        rows = from_table(to_table(read_part(shown, file.parent, part="test")))
    except DataError:
        _check_numbers(shown, file)
        raise
    if not length(rows):
        raise DataError(f"{str(file)!r} has no rows, only a header. Give a file with rows to predict.")
    _warn_of_rows(run, settings, shown, rows, str(file))
    if has_members(run):
        members, choice = read_choice(run)
        predictions = choice(tuple(_predicted(finished(member)[1], models_in(member, code), rows, None) for member in members))
    else:
        predictions = _predicted(folds, models_in(run, code), rows, read_json(run / folders.METRICS).get("threshold"))
    name, ids = ids_of(shown, rows, len(predictions))
    return {name: ids.tolist(), **(prediction_columns if probabilities else target_columns)(spec, predictions)}


def _warn_of_rows(run: Path, settings: folders.Settings, spec: DatasetSpec, rows: Dataset[Any], file: str) -> None:
    """Warn if rows to predict have no id of the run, or values unlike the rows of the train file."""
    known = load_spec(run / folders.SPEC)
    if spec.id != known.id:
        warnings.warn(
            f"{file!r} has no id column {known.id!r}, so the predictions have row numbers, starting at 0, in the column 'row'. For ids, "
            "add the column to the file.",
            RuntimeWarning,
            stacklevel=3,
        )
    folder = folders.data_folder(run, settings["data"]["path"])
    train = folder / known.train.name
    if settings["own"]["rows"] is None and train.is_file():
        digest = read_json(run / folders.RECEIPT).get("data", {}).get("files", {}).get("train")
        if digest is not None and not folders.is_as_written(train, digest):
            warnings.warn(
                f"{train} has changed since the run, so the values of {file!r} were not compared with the training rows. To compare, "
                f"restore the file, such as from {train.name}.original.",
                RuntimeWarning,
                stacklevel=3,
            )
        elif unseen := list(unseen_values(spec, read_part(known, folder), rows)):
            warnings.warn(
                f"{file!r} has values unlike all training rows: {', '.join(unseen)}. No model has learned from such values. Write the "
                "values as in the train file, or train with rows that have the values.",
                RuntimeWarning,
                stacklevel=3,
            )


def unread_targets(folder: str | PathLike[str], path: str | PathLike[str]) -> list[str]:
    """Return the target columns in a file that `predict` has read with the run in `folder`."""
    if not (Path(folder) / folders.SPEC).is_file():  # a run on images or audio
        return []
    spec = load_spec(Path(folder) / folders.SPEC)
    present = column_names(Path(path), encoding=spec.encoding)
    return [name for name in spec.target if name in present]


def _check_numbers(spec: DatasetSpec, file: Path) -> None:
    """Raise `DataError` if a number column of a file holds texts. The error of the reader would name arguments that no run has."""
    table = read_strings(file, spec)
    numbers = [column.name for column in spec.columns if column.kind.is_number]
    for name in numbers:
        if len(wrong := not_numbers(table[name])):
            index = pc.index(table[name], wrong[0]).as_py()
            code = number_code(table.select([other for other in numbers if len(not_numbers(table[other]))]), file, spec.encoding)
            raise DataError(
                f"The column {name!r} of the run holds numbers, got {wrong[0].as_py()!r:.60} in {location(file, table, index)}. Write "
                f"plain numbers such as 1234.5, as in the train file{code or ', and leave the cells of missing values empty.'}"
            )


def _predicted(folds: Sequence[FoldFolder], models: Models, rows: Dataset[Any], limit: float | None) -> Numbers:
    """Predict rows with the models of all folds of a run."""
    predictors = [load_predictor(models, fold) for fold in folds]
    for model in predictors:
        if isinstance(model, Predictor):
            budget(model.recipe, rows)  # rows longer than text.max_length raise an error here
    return combine([model(rows) for model in predictors], limit)


def export(folder: str | PathLike[str], out: str | PathLike[str], *, code: Code = None) -> tuple[Path, ...]:
    """Write the models of a finished run in the format of the Hugging Face hub, one folder for each fold.

    `models.load` and `load_tokenizer` read `config.json`, `model.safetensors` and `tokenizer.json` in each folder. `recipe.json` holds
    everything else that a prediction needs: the classes in output order, the scale of values and the text format of a row.

    An estimator is written in the format of `kaggle.save_estimator`. With `model.name=auto`, each model of the blend has a folder with a
    subfolder for each fold. The argument `code` is explained in `run`. Raises `DataError` for an unfinished run, `ArgumentError` for a
    folder that is not empty, and the errors of `models.save` for a user-defined model.

    >>> import mlxfp as fp
    >>> fp.runs.export("no such folder", "models")
    Traceback (most recent call last):
    mlxfp.support.errors.MissingFileError: 'no such folder' is not the folder of a run: config.yaml is missing. ...
    """
    run, target = Path(folder), Path(out)
    settings, folds = finished(run)
    task = settings["task"]
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ArgumentError(f"The output folder of an export must be empty or new, and {str(target)!r} is not empty. Give another folder.")
    if task in ("images", "audio"):
        raise ArgumentError(
            f"A run with task={task} cannot be exported, because the hub format does not fit the model. The weights are in "
            f"{folds[0] / folders.MODEL}. To use the weights, call fp.runs.predict."
        )
    if has_members(run):
        return tuple(path for member in read_choice(run)[0] for path in export(member, target / member.name, code=code))
    if task == "language_model":
        copytree(folds[0] / MODEL_FOLDER, target, dirs_exist_ok=True)
        return (target,)
    models, written = models_in(run, code), []
    for fold in folds if models.estimator is None else ():
        predictor = load_fold(models, fold)
        fold_folder = target / f"fold-{fold.fold:02}"
        trained = functional(predictor.model).bind(predictor.state.params, predictor.state.buffers)
        save(fold_folder, trained, tokenizer=predictor.recipe.tokenizer)
        write_json(fold_folder / folders.RECIPE, read_json(fold / folders.RECIPE))
        written.append(fold_folder)
    return tuple(written) or tuple(_copied(fold, target / f"fold-{fold.fold:02}") for fold in folds)


def _copied(fold: FoldFolder, target: Path) -> Path:
    """Copy the files of a fitted estimator to a new folder `target`, from which `load_estimator` reads the estimator."""
    target.mkdir(parents=True)
    for name in fold.result()["files"]:
        if name not in (folders.FOLD_OOF, folders.FOLD_TEST):
            copyfile(fold / name, target / name)
    return target


def finished(run: Path) -> tuple[folders.Settings, tuple[FoldFolder, ...]]:
    """Return the options and the folds of a finished run. Raises `DataError` for an unfinished run or changed files."""
    settings, begun = folders.settings_in(run), sum(path.is_dir() for path in run.glob("fold-*"))
    folds = tuple(FoldFolder(run, index + 1) for index in range(begun))
    if not folders.is_done(run) or not all(path.done for path in folds):
        raise DataError(f"The run in {run} is not finished. Continue the run first: mlxfp resume {run}")
    if read_json(run / folders.DATA)["config"] != folders.config_fingerprint(settings):
        raise DataError(f"{folders.CONFIG} in {run} has changed since the start of the run. Restore the original file.")
    return settings, folds
