"""Names of other libraries are answered with ours: as arguments, as names of `fp` and as methods of a dataset."""

import inspect
import pickle
import re
from operator import attrgetter

import pytest

import mlxfp as fp
from mlxfp.support import foreign_names
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.support.foreign_names import ARGUMENTS, argument_hint, name_hint, plain
from tests.properties.project.test_families import FAMILIES

ROWS = fp.from_examples([{"text": "a", "x": 1}, {"text": "b", "x": 2}])

CALLS = [
    (lambda: fp.batch(batch_size=32), "batch_size is size here. Call it as batch(size); optional arguments: drop_last."),
    (lambda: fp.batch(32, drop_remainder=True), "drop_remainder is drop_last here."),
    (lambda: fp.batch(32, num_workers=2), "Instead of num_workers: fp.prefetch(2, workers=4) runs all earlier stages"),
    (lambda: fp.batch(32, seed=1), "Instead of seed: each random stage has its own seed, as in fp.shuffle(seed=0)."),
    (lambda: fp.map(dict, batched=True), "Instead of batched: fp.map_chunks(function) processes whole chunks."),
    (lambda: fp.map(dict, num_proc=4), "Instead of num_proc: fp.prefetch(2, workers=4) runs all earlier stages"),
    (lambda: fp.map(dict, remove_columns=["x"]), "the result of the function replaces the example, and fp.drop_columns(columns)"),
    (lambda: fp.prefetch(2, num_parallel_calls=4), "num_parallel_calls is workers here."),
    (lambda: fp.prefetch(2, work=4), "Did you mean 'workers'?"),
    (fp.shuffle, "missing 1 required keyword-only argument: 'seed'. Call it as shuffle(seed=...); optional arguments: buffer, files."),
    (lambda: fp.shuffle(buffer_size=1000, seed=0), "buffer_size is buffer here."),
    (fp.prefetch, "Call it as prefetch(depth); optional arguments: workers, kind, max_bytes."),
    (lambda: fp.prefetch(2, num_workers=2), "num_workers is workers here."),
    (fp.repeat, "Call it as repeat(epochs)."),
    (lambda: fp.read_csv("a.csv", sep=";"), "sep is delimiter here."),
    (lambda: fp.read_csv("a.csv", names=["a"], header=None), "names is columns here. Instead of header: the first line of a CSV file"),
    (lambda: fp.read_csv("a.csv", dtype=str), "dtype is schema here."),
    (lambda: fp.read_csv("a.csv", parse_dates=["day"]), "Instead of parse_dates: fp.read_csv reads ISO dates as dates, or declare schema="),
    (lambda: fp.read_csv("a.csv", nrows=3), "Instead of nrows: fp.take(count) after the source keeps the first rows."),
    (lambda: fp.optimizers.adamw(lr=1e-3), "lr is learning_rate here."),
    (lambda: fp.train_step(1, 2, 3, lr=1e-3), "Instead of lr: set the value in the optimizer, as in fp.optimizers.adamw(1e-3)."),
    (lambda: fp.train_step(1, 2, 3, reduction="mean"), "Instead of reduction: a loss returns a sum and a weight, and the step divides."),
    (lambda: fp.train_step(1, 2, 3, gradient_accumulation_steps=2), "gradient_accumulation_steps is accumulate here."),
    (lambda: fp.train_step(1, 2, 3, max_grad_norm=1.0), "max_grad_norm is clip_norm here."),
    (lambda: fp.fit(1, 2, 3, callbacks=[]), "Instead of callbacks: use an observer: fp.pipe(fp.fit("),
    (lambda: fp.observers.early_stopping(patience=3), "Call it as early_stopping(metric, mode=..., patience=...)."),
    (lambda: fp.pad(32, 0), "pad() takes 1 positional argument but 2 were given. Call it as pad(length, pad_id=...); optional arguments"),
    (lambda: fp.kaggle.find({}, "binary"), "Call it as find(specs, kind=...)."),
    (lambda: fp.kaggle.submit("a.csv", "titanic", "first"), "Call it as submit(path, competition, message=..., yes=...); optional"),
    (lambda: fp.schedules.cosine_decay(1e-3, 100), "Call it as cosine_decay(rate, steps=...); optional arguments: warmup, end."),
    (lambda: fp.schedules.cosine_decay(lr=1e-3, max_steps=9), "lr is rate here. max_steps is steps here."),
    (lambda: fp.concat(ROWS, ROWS), "takes 1 positional argument but 2 were given. Call it as concat(datasets), where datasets is a list."),
    (lambda: fp.split([30, 10]), "argument: 'seed'. Call it as split(fractions, seed=...), where fractions is a list; optional"),
    (lambda: fp.split([0.8, 0.2], random_state=0), "random_state is seed here."),
    (lambda: fp.tokenize(None, padding=True), "Instead of padding: the collator pads, as in fp.collators.text(pad_id=0)."),
    (lambda: fp.collators.text(pad_token_id=0), "pad_token_id is pad_id here."),
    (lambda: fp.kaggle.folds.kfold(10, n_splits=5, random_state=0), "n_splits is count here. random_state is seed here."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "answer"), CALLS, ids=[answer[:50] for _, answer in CALLS])
def test_an_argument_of_another_library_is_answered_with_ours(call, answer):
    with pytest.raises(ArgumentTypeError) as caught:
        call()
    assert answer in str(caught.value)


def test_a_function_that_explains_its_calls_stays_the_function_that_it_is():
    assert str(inspect.signature(fp.batch)).startswith("(size: int, *, drop_last: bool = False) -> ")
    assert fp.batch.__module__ == "mlxfp.data.lengths.batching"
    assert pickle.loads(pickle.dumps(fp.batch)) is fp.batch
    assert fp.batch.__doc__.startswith("Group consecutive examples")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("DataLoader", "Write fp.pipe(rows, fp.shuffle(seed=0), fp.batch(32), fp.collate(collator), fp.prefetch(2))."),
        ("Trainer", "Write fp.last(fp.fit(step, state, batches))."),
        ("load_dataset", "Write fp.from_hf(load_dataset(...)), or a reader of files such as fp.read_csv(path)."),
        ("from_pandas", "Write fp.from_table(table)."),
        ("from_generator", "Write fp.from_iterable(function)."),
        ("train_test_split", "Write fp.split([0.8, 0.2], seed=0)."),
        ("read_cvs", "Did you mean 'read_csv'?"),
    ],
)
def test_a_name_of_another_library_is_answered_with_ours(name, answer):
    with pytest.raises(AttributeError) as caught:
        getattr(fp, name)
    assert str(caught.value) == f"module 'mlxfp' has no attribute {name!r}. {answer}"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("map", "Write fp.pipe(rows, fp.map(...))."),
        ("batch", "Write fp.pipe(rows, fp.batch(...))."),
        ("remove_columns", "Write fp.drop_columns(['x'])."),
        ("column_names", "Write fp.schema(rows).names."),
        ("features", "Write fp.schema(rows)."),
        ("set_epoch", "Write fp.iterate(rows, epoch=1)."),
    ],
)
def test_a_method_of_another_library_is_answered_with_ours(name, answer):
    assert not hasattr(ROWS, name)
    with pytest.raises(AttributeError) as caught:
        getattr(ROWS, name)
    assert str(caught.value) == (
        f"A dataset has no attribute {name!r}. {answer} Stages are functions here: fp.pipe(rows, stage, ...), or rows.pipe(stage, ...)."
    )


def test_a_dataset_says_what_python_says_of_an_attribute_that_nobody_has():
    with pytest.raises(AttributeError, match=r"^'Dataset' object has no attribute 'unheard'"):
        ROWS.unheard  # noqa: B018  # the access is the test
    assert not hasattr(ROWS, "_repr_png_")
    assert not hasattr(ROWS, "__array__")


def test_an_attribute_error_inside_a_property_is_not_hidden():
    broken = fp.Dataset(source=object())
    with pytest.raises(AttributeError, match="'object' object has no attribute 'traits'"):
        broken.level  # noqa: B018  # the access is the test


@pytest.mark.parametrize("join", [lambda: ROWS | fp.batch(2), lambda: ROWS >> fp.batch(2)])
def test_stages_are_not_joined_by_operators(join):
    with pytest.raises(ArgumentTypeError) as caught:
        join()
    assert str(caught.value) == (
        "An operator such as | or >> cannot add a stage to a dataset: got batch(size=2) after pipe(from_examples(2 rows)). "
        "Stages are functions here: fp.pipe(rows, stage, ...), or rows.pipe(stage, ...)."
    )


def test_a_column_is_not_an_index():
    with pytest.raises(ArgumentTypeError) as caught:
        ROWS["text"]
    assert str(caught.value) == (
        "A dataset is indexed by row number, got ['text'] on pipe(from_examples(2 rows)). For the values of a column, write [row['text'] "
        "for row in rows]. For a dataset with only this column, write fp.pipe(rows, fp.select_columns(['text']))."
    )
    with pytest.raises(ArgumentTypeError) as caught:
        ROWS[:1]["text"]
    assert str(caught.value) == "Examples are indexed by position, got ['text']. For a whole column write .column('text')."


def test_pipe_as_a_method_is_the_function():
    assert ROWS.pipe() == ROWS
    assert ROWS.pipe(fp.shuffle(seed=0), fp.batch(2)) == fp.pipe(ROWS, fp.shuffle(seed=0), fp.batch(2))
    with pytest.raises(ArgumentTypeError, match="argument 2 of pipe must be a function"):
        ROWS.pipe(3)


# The tables themselves.


def public_functions():
    families = [getattr(fp, name) for name in FAMILIES]
    places = [fp, *families, fp.kaggle.folds]
    return [value for place in places for name in dir(place) if inspect.isfunction(value := getattr(place, name))]


def test_every_argument_in_the_table_is_one_of_a_public_function():
    arguments = {name for function in [*public_functions(), fp.models.BertConfig] for name in inspect.signature(function).parameters}
    ours = {name for name in ARGUMENTS if " " not in name} | set(foreign_names._ELSEWHERE)
    assert ours - arguments == set()


def test_every_answer_names_what_is_there():
    answers = [*ARGUMENTS, *foreign_names._ELSEWHERE.values(), *foreign_names._NAMES]
    named = {name.rstrip(".") for answer in answers for name in re.findall(r"\bfp\.([\w.]+)", answer)}
    assert len(named) > 40
    for name in named:
        attrgetter(name)(fp)


def test_every_source_stage_and_collator_explains_its_calls():
    rooms = tuple(f"mlxfp.{room}." for room in ("data.sources", "data.rows", "data.lengths", "data.running", "text", "collators", "tasks"))
    made = {name: value for place in (fp, fp.collators) for name in dir(place) if inspect.isfunction(value := getattr(place, name))}
    silent = [name for name, value in made.items() if value.__module__.startswith(rooms) and not hasattr(value, "__wrapped__")]
    assert silent == []


def test_a_foreign_name_means_one_argument_of_a_function():
    words = [(plain(name), ours) for ours, names in ARGUMENTS.items() for name in names.split()]
    for function in public_functions():
        meant = [word for word, ours in words if ours in inspect.signature(function).parameters]
        assert sorted(set(meant)) == sorted(meant), function.__name__


def test_a_public_name_is_not_answered_with_another():
    # What is a public function here may be a method of a dataset there: then the answer says how it is called.
    answered = {name: hint for name in fp.__all__ if (hint := name_hint(name))}
    assert {name: hint for name, hint in answered.items() if not re.search(rf"\bfp\.{name}\(", hint)} == {}


@pytest.mark.parametrize("name", ["batch_size", "batchSize", "batch-size", "BATCH_SIZE"])
def test_the_spelling_of_a_name_does_not_matter(name):
    assert plain(name) == "batchsize"
    assert argument_hint(name, ["size"]) == f"{name} is size here."
