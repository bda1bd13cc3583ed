"""Competitions: specs of data sets, rows as text, folds and out-of-fold scores, ensembles, submissions."""

from mlxfp.app.kaggle.ensembling import ensembles
from mlxfp.app.kaggle.ensembling.calibration import ClassWeights, Threshold, class_weights, platt, threshold
from mlxfp.app.kaggle.ensembling.stacking import SecondStage, second_stage
from mlxfp.app.kaggle.estimators.files import load_estimator, save_estimator
from mlxfp.app.kaggle.estimators.fitting import Estimator, FittedEstimator, estimator
from mlxfp.app.kaggle.rows.row_to_text import RowToText, fit_row_to_text
from mlxfp.app.kaggle.rows.token_budgets import ColumnTokens, TokenBudget, token_budget
from mlxfp.app.kaggle.specs.catalogue import SPECS, find, scan
from mlxfp.app.kaggle.specs.checking import check_spec
from mlxfp.app.kaggle.specs.inferring import infer_spec
from mlxfp.app.kaggle.specs.reading import read_part
from mlxfp.app.kaggle.specs.spec_files import load_spec, load_specs, save_spec, save_specs
from mlxfp.app.kaggle.specs.specs import ColumnSpec, DatasetSpec, FileSpec, SubmissionSpec
from mlxfp.app.kaggle.specs.synthetic import write_synthetic
from mlxfp.app.kaggle.specs.tables import column_values
from mlxfp.app.kaggle.submitting.submissions import Submission, check_submission, submission
from mlxfp.app.kaggle.submitting.uploading import Verdict, credentials_in, submit
from mlxfp.app.kaggle.validation import folds
from mlxfp.app.kaggle.validation.cross_validation import CrossValidation, cross_validate, test_time_augmentation, validate_fold
from mlxfp.app.kaggle.validation.out_of_fold import Comparison, FoldPredictions, OutOfFold, Score, compare, out_of_fold, score
from mlxfp.app.kaggle.validation.pseudolabels import Confidence, pseudo_label
from mlxfp.app.kaggle.validation.scoring import METRICS, Metric, labels_of, map_at

__all__ = [
    "METRICS",
    "SPECS",
    "ClassWeights",
    "ColumnSpec",
    "ColumnTokens",
    "Comparison",
    "Confidence",
    "CrossValidation",
    "DatasetSpec",
    "Estimator",
    "FileSpec",
    "FittedEstimator",
    "FoldPredictions",
    "Metric",
    "OutOfFold",
    "RowToText",
    "Score",
    "SecondStage",
    "Submission",
    "SubmissionSpec",
    "Threshold",
    "TokenBudget",
    "Verdict",
    "check_spec",
    "check_submission",
    "class_weights",
    "column_values",
    "compare",
    "credentials_in",
    "cross_validate",
    "ensembles",
    "estimator",
    "find",
    "fit_row_to_text",
    "folds",
    "infer_spec",
    "labels_of",
    "load_estimator",
    "load_spec",
    "load_specs",
    "map_at",
    "out_of_fold",
    "platt",
    "pseudo_label",
    "read_part",
    "save_estimator",
    "save_spec",
    "save_specs",
    "scan",
    "score",
    "second_stage",
    "submission",
    "submit",
    "test_time_augmentation",
    "threshold",
    "token_budget",
    "validate_fold",
    "write_synthetic",
]


def __dir__() -> list[str]:
    return __all__
