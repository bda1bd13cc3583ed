"""A new network for tables or a new kind of target is one entry of one table: everything else follows from the entry."""

import subprocess
import sys

import mlxfp as fp
from mlxfp.app.kaggle.specs.kinds import TASK_KINDS, TaskKind
from mlxfp.app.runs.outcomes import prediction_columns
from mlxfp.app.runs.submission import make_submission
from mlxfp.app.tasks.recipes import training_batches
from tests.app.runs.competitions import competition

# In a process of its own: the entry must be in the table before the application is imported.
NETWORK = """
import sys
import mlx.core as mx
from attrs import frozen
from mlx import nn

import mlxfp as fp
from mlxfp.models import TABLE_MODELS, GroupedRates, TableColumns, TableModel, TableTarget
from mlxfp.support.registries import Registry

@frozen(kw_only=True)
class LineConfig:
    columns: TableColumns
    target: TableTarget
    dropout: float = 0.0
    power: float = 1.0

class Line(nn.Module):
    def __init__(self, config, *, seed=0):
        super().__init__()
        self.config = config
        self.weight = mx.random.normal((len(config.columns.numbers), config.target.outputs), key=mx.random.key(seed))

    def __call__(self, numbers=None, categories=None):
        return numbers**self.config.power @ self.weight

    def members(self, numbers=None, categories=None):
        return mx.stack([self(numbers, categories)] * 2, axis=1)

entry = TableModel(
    config=LineConfig,
    network=Line,
    sizes=Registry("size", {"base": {}}),
    smoothing=0.2,
    defaults={
        "model": {"size": "base"},
        "optimizer": {"name": "line", "learning_rate": None},
        "schedule": {"name": "coslog"},
        "training": {"epochs": 2},
    },
    rates=GroupedRates(peaks={"class": 0.5}, groups=((("weight",), 2.0, 0.0),)),
    space={"model.arguments.power": ("float", 0.5, 1.5)},
)
TABLE_MODELS.__init__("network for tables", {**dict(TABLE_MODELS.entries), "line": entry})

folder = sys.argv[1]
shared = ["data.spec=titanic", "data.limit=60", "validation.folds=2", "observers.progress=false", "observers.plots=false"]
resolved = fp.runs.load_config(overrides=[*shared, f"output={folder}", "name=out", "model.name=line", "model.arguments.power=1.0"])
assert resolved.origin("training.epochs") == "model line"
assert [parameter.key for parameter in fp.runs.SPACES["line"]] == ["model.arguments.power"]
assert "line" in fp.runs.CHOICES["optimizer.name"] and "line" in fp.runs.CHOICES["model.name"]
prepared = fp.runs.prepare(resolved.config)
assert fp.kaggle.objective(prepared.recipe).smoothing == 0.2
*_, end = fp.runs.run(resolved.config)
models = [fp.models.load(path) for path in fp.runs.export(f"{folder}/out", f"{folder}/models")]
print(type(models[0]).__name__, end.submission.name)
"""


def test_a_network_for_tables_is_one_entry(tmp_path):
    ended = subprocess.run([sys.executable, "-c", NETWORK, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("Line submission.csv\n", 0), ended.stderr


def test_a_kind_of_target_is_one_entry(tmp_path, monkeypatch):
    stars = TaskKind("stars", answer="class", metrics=("qwk", "accuracy"), question="How many stars has {0}?", column="group")  # type: ignore[arg-type]  # a new name
    monkeypatch.setitem(TASK_KINDS, "stars", stars)  # type: ignore[arg-type]  # a dict
    rows = [{"id": index, "shop": f"shop {index % 5}", "size": float(index % 3), "stars": index % 3 + 1} for index in range(30)]
    test, sample = [{name: row[name] for name in ("id", "shop", "size")} for row in rows], [{"id": row["id"], "stars": 1} for row in rows]
    folder = competition(tmp_path / "shops", rows, test, sample)
    files = {
        part: fp.kaggle.FileSpec(name=f"{name}.csv")
        for part, name in (("train", "train"), ("test", "test"), ("sample", "sample_submission"))
    }
    columns = [fp.kaggle.ColumnSpec(name="size", type="numerical")]
    about = {"id": "id", "group": "shop", "target": ["stars"], "classes": ["1", "2", "3"], "columns": columns, "metric": "qwk"}
    spec = fp.kaggle.DatasetSpec(name="shops", kind="stars", **files, **about)
    data = fp.kaggle.read_competition(folder, spec=spec)
    fold = next(iter(fp.kaggle.make_folds(data, count=2)))
    assert not {row["shop"] for row in fp.pipe(data.rows, fp.select(fold.train))} & {
        row["shop"] for row in fp.pipe(data.rows, fp.select(fold.valid))
    }
    assert next(iter(fp.pipe(data.rows, fp.kaggle.fit_row_to_text(spec, data.rows))))["text"].startswith(
        "How many stars has stars? The size"
    )
    recipe = fp.kaggle.fit_table_recipe(spec, data.rows, "tabm")
    model, goal, optimizer = fp.kaggle.make_table_model(recipe, size="tiny", seed=0), fp.kaggle.objective(recipe), fp.optimizers.adamw(0.01)
    step, batches = fp.train_step(model, goal.loss, optimizer), training_batches(recipe, data.rows, size=10, seed=0)
    *_, end = fp.fit(step, fp.train_state(model, optimizer, seed=0), batches, epochs=20)
    predictions = fp.kaggle.Predictor(recipe, model, end.state)(data.test)
    assert (predictions.argmax(axis=1) == data.targets).all()
    assert list(prediction_columns(spec, predictions)) == ["1", "2", "3"]
    assert make_submission(data, predictions) is not None
