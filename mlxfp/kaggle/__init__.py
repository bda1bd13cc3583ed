"""Competitions: data sets described as values, rows as text, folds and honest scores, ensembles, submissions."""

from mlxfp.kaggle import ensembles, folds
from mlxfp.kaggle.calibration import isotonic, platt
from mlxfp.kaggle.catalogue import SPECS, find, scan
from mlxfp.kaggle.checking import check_spec
from mlxfp.kaggle.held_out import Comparison, FoldPredictions, OutOfFold, Score, compare, out_of_fold, score
from mlxfp.kaggle.inferring import infer_spec
from mlxfp.kaggle.key_values import read_key_values
from mlxfp.kaggle.making_up import make_up
from mlxfp.kaggle.pseudolabels import Confidence, pseudo_label
from mlxfp.kaggle.reading import read_part
from mlxfp.kaggle.scoring import METRICS, Metric, labels_of, map_at
from mlxfp.kaggle.second_stages import SecondStage, second_stage
from mlxfp.kaggle.small_models import SmallFit, small_fit
from mlxfp.kaggle.spec_files import load_spec, load_specs, save_spec, save_specs
from mlxfp.kaggle.specs import ColumnSpec, DatasetSpec, FileSpec, SubmissionSpec
from mlxfp.kaggle.submissions import Submission, check_submission, submission
from mlxfp.kaggle.tables import column_values, to_table
from mlxfp.kaggle.thresholds import Threshold, threshold
from mlxfp.kaggle.token_budgets import ColumnTokens, TokenBudget, token_budget
from mlxfp.kaggle.uploading import Verdict, credentials_in, submit
from mlxfp.kaggle.validating import CrossValidation, cross_validate, validate_fold
from mlxfp.kaggle.views import test_time_augmentation
from mlxfp.kaggle.wording import Wording, fit_wording

__all__ = [
    "METRICS",
    "SPECS",
    "ColumnSpec",
    "ColumnTokens",
    "Comparison",
    "Confidence",
    "CrossValidation",
    "DatasetSpec",
    "FileSpec",
    "FoldPredictions",
    "Metric",
    "OutOfFold",
    "Score",
    "SecondStage",
    "SmallFit",
    "Submission",
    "SubmissionSpec",
    "Threshold",
    "TokenBudget",
    "Verdict",
    "Wording",
    "check_spec",
    "check_submission",
    "column_values",
    "compare",
    "credentials_in",
    "cross_validate",
    "ensembles",
    "find",
    "fit_wording",
    "folds",
    "infer_spec",
    "isotonic",
    "labels_of",
    "load_spec",
    "load_specs",
    "make_up",
    "map_at",
    "out_of_fold",
    "platt",
    "pseudo_label",
    "read_key_values",
    "read_part",
    "save_spec",
    "save_specs",
    "scan",
    "score",
    "second_stage",
    "small_fit",
    "submission",
    "submit",
    "test_time_augmentation",
    "threshold",
    "to_table",
    "token_budget",
    "validate_fold",
]
