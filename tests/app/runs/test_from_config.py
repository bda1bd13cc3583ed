"""A configuration becomes values in one place: data, folds, recipe, model, optimizer and step."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from attrs import evolve

import mlxfp as fp
from mlxfp.app.config.loading import json_schema, resolve_config
from mlxfp.app.runs.from_config.parts import CHOICES, competition_data, load_config, model_of, optimizer_of, recipe_of, step_of
from mlxfp.app.runs.from_config.problems import config_problems
from mlxfp.support.errors import ArgumentError, ConfigError, MissingFileError, UnknownNameError
from mlxfp.support.structuring import flatten, unstructure
from mlxfp.training.optimization import optimizers, schedules
from tests.app.tasks.drawing import rows_of, spec_of

TEXT = fp.runs.TextConfig(max_length=32, vocab_size=120, overflow="cut", form="key_value", numbers="none")
ENCODER = fp.runs.ModelConfig(name="encoder", size="tiny")


def test_every_choice_is_an_option_and_its_default_is_known():
    defaults = flatten(unstructure(fp.runs.RunConfig()))
    for path, names in CHOICES.items():
        assert defaults[path] is None or defaults[path] in names
        assert len(names) > 1


@pytest.mark.parametrize("path", CHOICES)
def test_an_unknown_name_is_refused_with_the_other_mistakes_and_the_schema_lists_the_names(path):
    section, name = path.split(".")
    known = next(iter(CHOICES[path]))
    with pytest.raises(ConfigError) as caught:
        resolve_config(overrides=[f"{path}={known}x", "training.epochs=0"], choices=CHOICES)
    first, mistake, other = str(caught.value).splitlines()
    assert first == "2 mistakes in the configuration:"
    assert mistake.startswith(f"  {path} (command line): expected {known!r} or ")
    assert mistake.endswith(f" (did you mean {known!r}?), got '{known}x'")
    assert other == "  training.epochs (command line): expected at least 1, got 0"
    schema = json_schema(CHOICES)["properties"][section]["properties"][name]
    found = schema.get("anyOf", [schema])[0]["enum"]  # an estimator may also be a class, by the name of its module
    assert [each for each in found if each is not None] == [*CHOICES[path]]
    assert resolve_config(overrides=[f"{path}={known}"], choices=CHOICES)


def test_unknown_names_in_a_file_are_refused_with_their_lines(tmp_path):
    """`load_config` refuses names of parts while loading. User-defined parts are accepted."""
    path = tmp_path / "run.yaml"
    path.write_text("preset: titanic\nmodel:\n  name: resnet\noptimizer:\n  name: adan\nschedule: {name: cosin}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    first, *mistakes = str(caught.value).splitlines()
    assert first == "3 mistakes in the configuration:"
    for mistake, (option, line, text) in zip(
        mistakes,
        [
            ("model.name", 3, " or your own part as module:name, got 'resnet'"),
            ("optimizer.name", 5, " (did you mean 'adam'?), got 'adan'"),
            ("schedule.name", 6, " (did you mean 'cosine'?), got 'cosin'"),
        ],
        strict=True,
    ):
        assert mistake.startswith(f"  {option} ({path}:{line}): expected ")
        assert mistake.endswith(text)
    own = ["model.name=my_module:MyEstimator", "own.loss=my_module:my_loss", "own.observers=[my_module:watch]"]
    assert load_config(preset="titanic", overrides=own).config.own.observers == ("my_module:watch",)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.name=bert", "model.size=tinny"], "bert has no size 'tinny'; use base or large or "),
        (["model.size=tinny"], "modernbert has no size 'tinny'"),
        (["model.name=tabm", "model.size=tinny"], "tabm has no size 'tinny'"),
        (["task=images", "model.size=tinny"], "convnet has no size 'tinny'"),
        (["task=language_model", "model.size=tinny"], "decoder has no size 'tinny'"),
    ],
)
def test_an_unknown_size_of_a_network_is_a_problem(overrides, message):
    problems = dict(config_problems(load_config(overrides=overrides).config))
    assert problems["model.size"].startswith(message)
    assert "model.size" not in dict(config_problems(load_config(overrides=[*overrides, "own.model=mine:make"]).config))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path / "titanic", rows=40, test_rows=10)
    return tmp_path / "titanic"


def data_of(folder: Path, *, seed: int = 0, **data):
    return competition_data(fp.runs.RunConfig(data=fp.runs.DataConfig(**data), training=fp.runs.TrainingConfig(seed=seed)), folder)


def test_a_spec_is_known_by_name_or_read_from_a_file_or_inferred(folder: Path, tmp_path: Path):
    fp.kaggle.save_spec(evolve(fp.kaggle.SPECS["titanic"], name="own"), folder / "own.yaml")
    specs = (None, "titanic", str(folder / "own.yaml"))
    found = [data_of(tmp_path, path=str(folder), spec=spec) for spec in specs]
    assert [each.spec.name for each in found] == ["titanic", "titanic", "own"]
    assert found[1].spec == fp.kaggle.SPECS["titanic"] != found[0].spec
    assert all(fp.to_table(each.rows).equals(fp.to_table(found[1].rows)) for each in found[2:])


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        ({}, ArgumentError, r"The run has no data\. Give the folder of your files as data\.path=FOLDER, .* as in data\.spec=titanic\."),
        ({"path": "nowhere"}, MissingFileError, "There is no folder 'nowhere'. Give the folder with the competition's files"),
        ({"path": ".", "spec": "titanick"}, UnknownNameError, "No data set is named 'titanick'. Did you mean 'titanic'"),
        ({"path": ".", "spec": "nowhere.yaml"}, MissingFileError, "nowhere.yaml"),
        ({"path": ".", "spec": "broken.yaml"}, ConfigError, "broken.yaml"),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, monkeypatch, data, kind, message: str):
    monkeypatch.chdir(tmp_path)
    Path("broken.yaml").write_text("name: x\nkind: binry\n")
    with pytest.raises(kind, match=message):
        data_of(tmp_path, **data)


def test_synthetic_rows_are_made_for_a_known_data_set(tmp_path: Path):
    found = data_of(tmp_path, spec="spaceship_titanic", limit=30, seed=1)
    assert found.mismatches == ""
    assert fp.length(found.rows) == 30
    assert found.path_of("sample") == tmp_path / "data" / "sample_submission.csv"
    again = data_of(tmp_path, spec="spaceship_titanic", limit=30, seed=1)
    assert fp.to_table(again.rows).equals(fp.to_table(found.rows))
    with pytest.raises(ArgumentError, match="synthetic files never replace files"):
        data_of(tmp_path, spec="spaceship_titanic", seed=2)


def recipe_with(**changes):
    config = fp.runs.RunConfig(
        text=evolve(TEXT, vocab_size=300, tokenizer=changes.pop("tokenizer", "wordpiece")), model=fp.runs.ModelConfig(**changes)
    )
    return recipe_of(config, spec_of(), rows_of("binary"), seed=0)


def test_a_tokenizer_is_trained_or_read_from_its_path_or_from_the_folder_of_weights(tmp_path: Path):
    tokenizer = fp.train_tokenizer(fp.from_table({"text": ["another text of ships"]}), kind="wordpiece", vocab_size=80)
    tokenizer.save(tmp_path)
    assert recipe_with(tokenizer=str(tmp_path)).tokenizer == recipe_with(path=str(tmp_path)).tokenizer == tokenizer
    trained = [recipe_with(tokenizer=kind).tokenizer for kind in ("wordpiece", "bpe", "unigram")]
    assert len({tokenizer, *trained}) == 4
    with pytest.raises(MissingFileError, match="No tokenizer is at 'nowhere'"):
        recipe_with(tokenizer="nowhere")


def test_every_option_of_the_text_reaches_the_recipe():
    text = fp.runs.TextConfig(
        form="key_value",
        template="{Name}",
        missing="unknown",
        numbers="raw",
        digits=3,
        max_length=99,
        overflow="cut",
        permute=True,
        drop=0.25,
    )
    recipe = recipe_of(fp.runs.RunConfig(text=text, model=fp.runs.ModelConfig(numeric=True)), spec_of(), rows_of("binary"), seed=5)
    for name in ("form", "template", "missing", "numbers", "digits"):
        assert getattr(recipe.format, name) == getattr(text, name)
    for name in ("max_length", "overflow", "permute", "drop"):
        assert getattr(recipe, name) == getattr(text, name)
    assert (recipe.seed, recipe.scales is not None) == (5, True)


def test_every_option_of_the_training_reaches_the_step():
    config = fp.runs.RunConfig(
        text=TEXT,
        model=ENCODER,
        training=fp.runs.TrainingConfig(ema=0.5, accumulate=2, skip_nonfinite=True, compute_dtype="bfloat16", checkpoint_blocks=True),
    )
    recipe = recipe_of(config, spec_of(), rows_of("binary"), seed=0)
    model, optimizer = model_of(config, recipe, seed=0), optimizer_of(config, updates=4)
    options = step_of(config, model, fp.kaggle.objective(recipe), optimizer)._options
    assert (options.accumulate, options.clip_norm, options.ema, options.compute_dtype) == (2, 1.0, 0.5, mx.bfloat16)
    state = step_of(config, model, fp.kaggle.objective(recipe), optimizer).start(fp.train_state(model, optimizer, seed=0))
    assert "average" in state.extra


@pytest.mark.parametrize("schedule", schedules.SCHEDULES)
@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_every_option_of_optimizer_and_schedule_reaches_the_optimizer(name: str, schedule: str):
    config = fp.runs.RunConfig(
        optimizer=fp.runs.OptimizerConfig(name=name, learning_rate=0.25, weight_decay=0.5),
        schedule=fp.runs.ScheduleConfig(name=schedule, warmup=0.5),
    )
    made = optimizer_of(config, updates=4)
    rate = schedules.by_name(schedule, 0.25, steps=4, warmup=0.5)
    params = {"matrix": mx.array([[1.0, -2.0], [0.5, 3.0]]), "bias": mx.array([1.0, -1.0])}
    gradients = {"matrix": mx.array([[0.1, 0.2], [-0.3, 0.4]]), "bias": mx.array([0.5, -0.5])}
    results = []
    for optimizer in (made, optimizers.by_name(name, rate, weight_decay=0.5)):
        after, state = params, optimizers.start(optimizer, params)
        for _ in range(3):
            after, state = optimizers.update(optimizer, gradients, state, after)
        results.append(after)
    assert all(mx.array_equal(results[0][key], results[1][key]).item() for key in params)


def test_adam_takes_decay_for_a_part_of_the_gradient():
    config = fp.runs.RunConfig(
        optimizer=fp.runs.OptimizerConfig(name="adam", learning_rate=0.1, weight_decay=0.5),
        schedule=fp.runs.ScheduleConfig(name="constant", warmup=0.0),
    )
    params = {"matrix": mx.array([[1.0, -2.0], [0.5, 3.0]]), "bias": mx.ones(2)}
    gradients = {"matrix": mx.array([[0.1, 0.2], [-0.3, 0.4]]), "bias": mx.ones(2)}
    rate, first, second = 0.1, 0.9, 0.999
    weights, moment, square = np.array(params["matrix"]), 0.0, 0.0
    for count in range(1, 4):  # Kingma and Ba, "Adam", 2015, algorithm 1, with the gradient of 0.5 * |w|^2 / 2 added
        gradient = np.array(gradients["matrix"]) + 0.5 * weights
        moment, square = first * moment + (1 - first) * gradient, second * square + (1 - second) * gradient**2
        weights = weights - rate * (moment / (1 - first**count)) / (np.sqrt(square / (1 - second**count)) + 1e-8)
    optimizer = optimizer_of(config, updates=4)
    state = optimizers.start(optimizer, params)
    for _ in range(3):
        params, state = optimizers.update(optimizer, gradients, state, params)
    assert np.array(params["matrix"]) == pytest.approx(weights, rel=1e-4)


@pytest.mark.parametrize("option", ["text.vocab_size", "text.max_length", "validation.repeats", "data.prefetch"])
def test_numbers_that_would_exhaust_memory_are_refused_with_the_limit(option: str):
    name = option.split(".")[1]
    with pytest.raises(ConfigError, match=f"{name}.*at most"):
        resolve_config(overrides=[f"{option}={10**18}"])


def test_the_presets_differ_in_batch_size_and_in_the_preparation_of_batches():
    """Development has short tracebacks and quick epochs; training and competition prepare batches in workers."""
    configs = [fp.runs.load_config(preset=name).config for name in ("development", "training", "competition")]
    values = [(config.training.size, config.data.prefetch, config.data.workers) for config in configs]
    assert values == [(64, 0, 1), (32, 4, 2), (16, 8, 4)]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.workers=2", "data.prefetch=0"], r"data\.workers: 2 workers prepare batches in advance, but data\.prefetch is 0"),
        (["data.cache=rows"], r"data\.cache: task=competition keeps no rows in files; leave out the option"),
    ],
)
def test_options_of_the_data_without_effect_are_refused(overrides, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        fp.runs.plan(fp.runs.load_config(preset="titanic", overrides=[f"output={tmp_path}", *overrides]).config)
