"""Permutation importance: the amount by which the score worsens after the values of a column are shuffled."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from mlxfp import Dataset, drop_columns, from_table, select, to_table
from mlxfp.app.kaggle.validation.scoring import Numbers
from mlxfp.app.reports.reading import ModelOf, Scored
from mlxfp.support.progress import Progress
from mlxfp.support.randomness import fold_in, generator

_SHUFFLES = 5  # minimum number of shuffles of a column, over all folds
# Approximate maximum number of predicted rows, summed over all folds, columns and models of a blend. Networks have a lower maximum.
PREDICTED, BY_NETWORKS = 30_000, 5_000
_FEWEST = 20  # minimum number of rows drawn from each fold
_CELLS = 1_000_000  # approximate maximum number of table cells in one call of a model


@frozen
class Importance:
    """Importance of a column: mean and standard deviation of the amount by which the score worsens after the column is shuffled.

    The mean is positive if the column is useful for the model.
    """

    column: str
    mean: float
    sd: float


@frozen
class Importances:
    """Importance of every column, in descending order. Each column was shuffled `shuffles` times, with `rows` validation rows."""

    columns: tuple[Importance, ...]
    rows: int
    shuffles: int


def permutation_importance(scored: Scored, rows: Dataset[Any], model_of: ModelOf, predicted: int = PREDICTED) -> Importances:
    """Return the importance of every column: the deterioration of the score when the values of the column are shuffled.

    The model of each fold predicts evenly spaced validation rows of the fold. The random seed is fixed, so equal runs have equal
    importances. Source: Breiman, "Random Forests", 2001.

    The argument `predicted` limits the time: it is the approximate maximum number of predicted rows. A time limit in seconds would give
    different results in each run. Raises `DataError` if the score is undefined on the rows.
    """
    names = [column.name for column in scored.spec.columns]
    folds = [(index, fold.valid) for index, fold in enumerate(scored.oof.folds) if fold.repeat == 0]
    shuffles = -(-_SHUFFLES // len(folds))
    most = max(_FEWEST, predicted // (len(folds) * (1 + shuffles * len(names))))
    chosen = [(index, valid[_spaced(len(valid), most)]) for index, valid in folds]
    total = sum(len(valid) for _, valid in chosen) * (1 + shuffles * len(names))
    losses = list[Numbers]()
    with Progress("importance of columns", unit="row", total=lambda: total) as progress:
        for index, valid in chosen:
            table, model, predictions = to_table(drop_columns(list(scored.spec.target))(select(valid)(rows))), model_of(index), []
            for copies in _shuffled(table, names, shuffles, index):
                predictions.append(model(from_table(copies)))
                progress.update(copies.num_rows)
            targets = scored.oof.targets[valid]
            parts = np.split(np.concatenate(predictions), 1 + shuffles * len(names))
            values = np.array([scored.metric(targets, part) for part in parts])
            losses.append((values[0] - values[1:]).reshape(shuffles, len(names)) * (1 if scored.metric.greater_is_better else -1))
    every = np.concatenate(losses)
    means, sds = every.mean(axis=0).tolist(), every.std(axis=0, ddof=1).tolist()
    results = [Importance(name, mean, sd) for name, mean, sd in zip(names, means, sds, strict=True)]
    return Importances(tuple(sorted(results, key=lambda result: -result.mean)), sum(len(valid) for _, valid in chosen), len(every))


def _spaced(size: int, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(np.int64))


def _shuffled(table: pa.Table, names: Sequence[str], shuffles: int, fold: int) -> Iterator[pa.Table]:
    """Yield tables with copies of the rows of a fold. The first copy is unchanged. In each other copy, one column is shuffled.

    A table joins several copies, because models predict large tables faster.
    """
    at_once, copies = max(1, _CELLS // max(1, table.num_rows * table.num_columns)), [table]
    for number in range(shuffles):
        for name in names:
            if len(copies) == at_once:
                yield pa.concat_tables(copies)
                copies = []
            order = generator(fold_in(0, "importance", name, fold, number)).permutation(table.num_rows)
            copies.append(table.set_column(table.schema.get_field_index(name), table.schema.field(name), table.column(name).take(order)))
    yield pa.concat_tables(copies)
