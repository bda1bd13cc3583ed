"""Blending of the models of a run: weights, threshold and calibration, with a cross-validated score."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import numpy as np
from attrs import evolve, field, frozen

from mlxfp.app.kaggle.ensembling.calibration import Calibrated, ClassWeights, Logistic, Threshold, class_weights, platt, threshold
from mlxfp.app.kaggle.ensembling.ensembles import Weighted, fixed, greedy, weighted
from mlxfp.app.kaggle.ensembling.stacking import Combine, Learn, second_stage
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.validation.out_of_fold import OutOfFold, Score, score
from mlxfp.app.kaggle.validation.scoring import METRICS, Metric, Numbers
from mlxfp.support.errors import DataError

_ROUNDS = 25  # number of rounds of the greedy selection; each round adds a model or increases the weight of an added model
_RESAMPLES = 100  # number of bootstrap resamples for estimating a standard error
_RESAMPLED = 5000  # maximum number of rows for fitting blend weights, and for each bootstrap resample
After = Threshold | ClassWeights | Calibrated

_AT_ONE_HALF = ("accuracy", "f1_micro")  # metrics without a learned threshold: the most probable class scores better on new rows


@frozen
class Choice:
    """Weighted mean of the predictions of several models, followed by a threshold or calibration.

    `logarithmic=True` averages log(1 + value), for metrics of logarithmic errors.
    """

    weights: tuple[float, ...]
    after: After | None = None
    logarithmic: bool = False

    def __call__(self, predictions: tuple[Numbers, ...]) -> Numbers:
        """Combine the predictions of all models, one array for each model. Models with weight 0 are ignored."""
        combined = self.mean(predictions)
        return combined if self.after is None else self.after((combined,))

    def mean(self, predictions: tuple[Numbers, ...]) -> Numbers:
        """Return the weighted mean of the models' predictions, before a threshold or calibration is applied."""
        used = [(weight, values) for weight, values in zip(self.weights, predictions, strict=True) if weight > 0]
        combine = weighted([weight for weight, _ in used])
        if self.logarithmic:
            return np.expm1(combine([np.log1p(values) for _, values in used]))
        return combine([values for _, values in used])


@frozen
class Chosen:
    """The submitted model or blend, with predictions and scores.

    - `single` is the name of the submitted model, or None for a blend.
    - `oof` holds out-of-fold predictions. `scored` holds the same predictions, or labels if a decision threshold was learned.
    - `score` is the score of `scored`. `blend` is the score of the blend, or None if there was only one model.
    - `parts` maps the name of each model to the score of this model alone.
    - `adds` maps the name of each model to the improvement of the blend's score by this model. For a model removed from the blend, the
      improvement was measured before the removal.
    """

    choice: Choice
    oof: OutOfFold
    scored: OutOfFold
    score: Score
    single: str | None = None
    blend: Score | None = None
    parts: Mapping[str, float] = field(factory=dict)
    adds: Mapping[str, float] = field(factory=dict)


def choose(spec: DatasetSpec, metric: Metric, oofs: Mapping[str, OutOfFold], *, tune: bool) -> Chosen:
    """Choose between the blend and the best single model, from out-of-fold predictions on the same folds.

    The best model is chosen if its score is better than the score of the blend by more than the standard error of the difference.

    For each fold, the weights (by `greedy`) and the threshold or calibration are learned only on the other folds. Models that make the
    score of the blend worse get the weight 0. `tune=True` tunes a threshold also for metrics that usually do not gain from a threshold.
    """
    names, every = list(oofs), tuple(oofs.values())
    after = _after(spec, metric, tune=tune)
    alone = {name: _stage(fixed(weighted(np.eye(len(names))[index].tolist())), after, every, metric) for index, name in enumerate(names)}
    parts = {name: stage.score.overall for name, stage in alone.items()}
    best = max(parts, key=lambda name: parts[name] if metric.greater_is_better else -parts[name])
    if len(names) == 1:
        return evolve(alone[best], single=best, parts=parts)
    learn = greedy(_learned_by(spec, metric), rounds=_ROUNDS)
    stage = partial(_stage, learn, after, metric=metric)
    whole = stage(every)
    blended, adds, kept = _without_harmful(stage, whole, oofs, metric)
    if len(kept) == 1:
        return evolve(blended, single=kept[0], blend=whole.score, parts=parts, adds=adds)
    if _clearly_better(metric, alone[best], blended):
        return evolve(alone[best], single=best, blend=blended.score, parts=parts, adds=adds)
    return evolve(blended, blend=blended.score, parts=parts, adds=adds)


def _without_harmful(
    stage: Callable[..., Chosen], blended: Chosen, oofs: Mapping[str, OutOfFold], metric: Metric
) -> tuple[Chosen, dict[str, float], list[str]]:
    """Remove models from a blend, the most harmful model first, until no further removal improves the score.

    Return the remaining blend, the gain by each model, and the names of the remaining models. The gain by a model tells how much worse
    the score is if the weights are fitted again without the model.
    """
    kept, adds = list(oofs), dict[str, float]()
    while True:
        weights = dict(zip(kept, blended.choice.weights, strict=True))
        others = {out: tuple(oofs[name] for name in kept if name != out) for out in kept if weights[out] > 0 and len(kept) > 1}
        without = {out: stage(rest) for out, rest in others.items()}
        sign = 1 if metric.greater_is_better else -1
        adds |= {
            name: sign * (blended.score.overall - without.get(name, blended).score.overall) + 0.0 for name in kept
        }  # adding 0.0 turns -0.0 into 0.0, so that reports show no minus sign
        worst = min(kept, key=lambda name: adds[name])
        if adds[worst] >= 0:
            choice = evolve(blended.choice, weights=tuple(weights.get(name, 0.0) for name in oofs))
            return evolve(blended, choice=choice), {name: adds[name] for name in oofs}, kept
        blended = without[worst]
        kept.remove(worst)


def adds_to_blend(spec: DatasetSpec, metric: Metric, targets: Numbers, predictions: tuple[Numbers, ...]) -> bool:
    """Return True if the model with the last array of `predictions` gets a weight above 0 in a blend of all models."""
    choice = _learn(metric, greedy(_learned_by(spec, metric), rounds=_ROUNDS), None, targets, predictions)
    assert isinstance(choice, Choice)
    return choice.weights[-1] > 0


def _clearly_better(metric: Metric, first: Chosen, second: Chosen) -> bool:
    """Return True if the score of `first` is better than the score of `second` by more than the standard error (bootstrap estimate)."""
    better_by = (first.score.overall - second.score.overall) * (1 if metric.greater_is_better else -1)
    if better_by <= 0:
        return False
    rows, random = np.flatnonzero(first.oof.folds.assignments[0] >= 0), np.random.default_rng(0)
    differences, size = list[float](), min(len(rows), _RESAMPLED)
    for _ in range(_RESAMPLES):
        chosen = random.choice(rows, size)
        with suppress(DataError):  # skip resamples with an undefined metric, for example rows of a single class
            values = [metric(stage.scored.targets[chosen], stage.scored.predictions[0][chosen]) for stage in (first, second)]
            differences.append(values[0] - values[1])
    error = float(np.std(differences)) * (size / len(rows)) ** 0.5 if differences else 0.0
    return better_by > error


def _stage(learn: Learn, after: Learn | None, oofs: tuple[OutOfFold, ...], metric: Metric) -> Chosen:
    """Learn the weights of a weighted mean of models, then a correction of the mean: a threshold, class weights or a calibration.

    Calibration and class weights are kept only if they improve the score on rows that were not used for learning.
    """
    plain = second_stage(partial(_learn, metric, learn, None), *oofs)
    assert isinstance(plain.combine, Choice)
    stage = Chosen(plain.combine, plain.oof, plain.oof, score(plain.oof, metric))
    if after is None:
        return stage
    more = second_stage(partial(_learn, metric, learn, after), *oofs)
    assert isinstance(more.combine, Choice)
    scored = score(more.oof, metric)
    if isinstance(more.combine.after, Threshold):
        return Chosen(more.combine, plain.oof, more.oof, scored)
    return Chosen(more.combine, more.oof, more.oof, scored) if metric.better(scored.overall, stage.score.overall) else stage


def _learn(metric: Metric, learn: Learn, after: Learn | None, targets: Numbers, predictions: tuple[Numbers, ...]) -> Combine:
    logarithmic = metric.errors == "logarithmic"
    # Fit the blend weights on at most 5,000 evenly spaced rows. More rows hardly change the weights.
    spread = np.unique(np.linspace(0, len(targets) - 1, min(len(targets), _RESAMPLED)).astype(np.int64))
    targets, predictions = targets[spread], tuple(values[spread] for values in predictions)
    combine = learn(np.log1p(targets), tuple(map(np.log1p, predictions))) if logarithmic else learn(targets, predictions)
    assert isinstance(combine, Weighted)
    choice = Choice(combine.weights, logarithmic=logarithmic)
    if after is None:
        return choice
    correction = after(targets, (choice(predictions),))
    assert isinstance(correction, After)
    return evolve(choice, after=correction)


def _learned_by(spec: DatasetSpec, metric: Metric) -> Metric:
    """Return the metric for the search of blend weights.

    Metrics of class labels are replaced by log loss, because a small change of a weight changes few labels.
    """
    if metric.errors == "logarithmic":
        return METRICS["rmse"]  # the predictions are already logarithms
    return METRICS["log_loss"] if metric.needs == "labels" and spec.task.has_classes else metric


def _after(spec: DatasetSpec, metric: Metric, *, tune: bool) -> Learn | None:
    if metric.needs == "labels" and spec.task.is_decision and (tune or metric.name not in _AT_ONE_HALF):
        return threshold(metric)
    if metric.needs == "labels" and spec.task.one_class and len(spec.classes) > 2 and metric.name not in _AT_ONE_HALF:
        return class_weights(metric)
    return platt() if metric.name == "log_loss" and spec.task.one_class else None


def after_numbers(choice: Choice) -> dict[str, object]:
    """Return the learned threshold, class weights or calibration of a blend as a dictionary for a JSON file. Return {} if there is none."""
    if isinstance(choice.after, Threshold):
        return {"threshold": choice.after.value}
    if isinstance(choice.after, ClassWeights):
        return {"class_weights": list(choice.after.factors)}
    if isinstance(choice.after, Calibrated):
        return {"calibration": [[curve.slope, curve.intercept] for curve in choice.after.curves]}
    return {}


def after_of(numbers: Mapping[str, object]) -> After | None:
    """Return the threshold, the class weights or the calibration of a blend from the dictionary of a JSON file."""
    limit, factors, curves = (numbers.get(name) for name in ("threshold", "class_weights", "calibration"))
    if isinstance(limit, float):
        return Threshold(limit)
    if isinstance(factors, list):
        return ClassWeights(tuple(factors))
    return Calibrated(tuple(Logistic(*pair) for pair in curves)) if isinstance(curves, list) else None
