"""The texts of errors, in full: what is wrong, what we got, where, what to do.

The table has typical mistakes of all folders. Messages that need files or trained models are tested next to the code that raises them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest

import mlxfp
from mlxfp.core.chunks import from_rows
from mlxfp.core.cursors import Cursor
from mlxfp.core.describing import schema
from mlxfp.core.examples import Examples
from mlxfp.core.execution import iterate
from mlxfp.core.identity import fingerprint
from mlxfp.core.pipelines import compose, pipe
from mlxfp.data.lengths.batching import batch, unbatch
from mlxfp.data.rows.columns import drop_columns, rename_columns, select_columns
from mlxfp.data.rows.map_filter import filter, map, map_chunks, skip, take
from mlxfp.data.rows.repeating import repeat
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.in_memory import from_examples, from_iterable, from_table
from mlxfp.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    ConfigError,
    CursorError,
    CursorMismatchError,
    DataError,
    FingerprintError,
    MissingFileError,
    PipelineError,
    SchemaError,
    UnknownNameError,
)
from mlxfp.testing.probing import from_chunks

fp: Any = mlxfp  # without types, because the calls below are mistakes
ROWS: Any = from_table({"x": [1, 2, 3]})
INT = pa.schema({"x": pa.int64()})
IDS: dict[Any, dict[str, Any]] = {  # collators with a padding id, and their other required arguments
    fp.collators.causal: {},
    fp.collators.default: {},
    fp.collators.masked: {"mask_id": 1, "special_ids": [0], "vocab_size": 9, "seed": 0},
    fp.collators.preference: {},
    fp.collators.seq2seq: {"start_id": 1},
    fp.collators.text: {},
    fp.collators.tokens: {"labels": "labels"},
}

Case = tuple[Callable[[], Any], type[Exception], str]
CASES: list[Case] = [
    # arguments
    (lambda: batch(0), ArgumentError, "batch: size must be at least 1, got size=0."),
    (lambda: batch(2.5), ArgumentTypeError, "batch: size must be an int, got size=2.5."),  # type: ignore[arg-type]  # the mistake
    (lambda: batch(True), ArgumentTypeError, "batch: size must be an int, got size=True."),
    (lambda: take(0), ArgumentError, "take: count must be at least 1, got count=0."),
    (lambda: skip(-1), ArgumentError, "skip: count must be at least 0, got count=-1."),
    (lambda: repeat(0), ArgumentError, "repeat: epochs must be at least 1, got epochs=0."),
    (lambda: prefetch(0), ArgumentError, "prefetch: depth must be at least 1, got depth=0."),
    (lambda: shuffle(seed="a"), ArgumentTypeError, "shuffle: seed must be an int, got seed='a'."),  # type: ignore[arg-type]  # the mistake
    (lambda: shuffle(seed=0, buffer=0), ArgumentError, "shuffle: buffer must be at least 1, got buffer=0."),
    (lambda: filter(3), ArgumentTypeError, "filter: predicate must be a function, got predicate=3."),  # type: ignore[arg-type]  # the mistake
    (lambda: select_columns("x"), ArgumentTypeError, "select_columns: columns must be a list of strings, got the string 'x'. Write ['x']."),
    (lambda: drop_columns([]), ArgumentError, "drop_columns: columns must name at least one column, got none."),
    (lambda: select_columns(["x", "x"]), ArgumentError, "select_columns: columns repeats 'x'; each name may appear once."),
    (lambda: rename_columns({}), ArgumentError, "rename_columns needs at least one name, got none."),
    # sources in memory
    (
        lambda: from_examples([{"x": 1}, 5]),  # type: ignore[list-item]  # the mistake
        ArgumentTypeError,
        "Every example must be a mapping of column names to values, got int at index 1: 5.",
    ),
    (
        lambda: from_table([1, 2]),
        ArgumentTypeError,
        (
            "from_table needs a table with __arrow_c_stream__ or a mapping of columns, got list. "
            "Use from_examples for a list of dicts, or from_iterable for an iterable of dicts."
        ),
    ),
    (
        lambda: from_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])),
        SchemaError,
        "Several columns have the same name: got 'x' more than once, in the table. Rename the columns.",
    ),
    (lambda: from_table({"__row__": [1]}), SchemaError, "A column has a reserved name: got '__row__', in the table. Rename the column."),
    (lambda: from_table({"x": [1], "y": [1, 2]}), ArgumentError, "The columns of a table must have the same length, got {'x': 1, 'y': 2}."),
    (
        lambda: from_iterable(row for row in [{"x": 1}]),
        ArgumentTypeError,
        (
            "from_iterable needs an iterable that can be iterated repeatedly, got the one-pass generator. "
            "Pass a list, or a function as in from_iterable(lambda: (... for ...))."
        ),
    ),
    (
        lambda: from_iterable(5),  # type: ignore[arg-type]  # the mistake
        ArgumentTypeError,
        "from_iterable needs an iterable or a function that returns one, got int.",
    ),
    (
        lambda: list(from_iterable([{"x": 1}, [2]])),  # type: ignore[list-item]  # the mistake
        ArgumentTypeError,
        "Every example must be a mapping of column names to values, got list at index 1: [2].",
    ),
    (
        lambda: from_examples([{"x": 1}, {"x": "a"}]),
        SchemaError,
        (
            "Column 'x' of row 1: 'a' does not fit the type int64 of the rows before it. "
            "Make the values of a column one type, or declare it with schema=."
        ),
    ),
    (
        lambda: from_rows([{"x": 1, "y": 2}], INT, [7]),
        SchemaError,
        (
            "Row 7 has the column 'y', which the schema lacks. Columns: 'x'. "
            "Declare the column with schema=, or return the same columns for every row."
        ),
    ),
    (
        lambda: from_examples([{"x": np.zeros((1, 2))}, {"x": None}]),
        DataError,
        "Column 'x' of row 1 is null, and a column of fixed-shape tensors (1, 2) cannot hold nulls.",
    ),
    # pipelines
    (lambda: compose(3), ArgumentTypeError, "argument 1 of compose must be a function, got argument 1 of compose=3."),  # type: ignore[arg-type, call-overload]  # the mistake
    (
        lambda: batch(2)([{"x": 1}]),  # type: ignore[arg-type]  # the mistake
        ArgumentTypeError,
        "batch(size=2) works on a dataset, got list: [{'x': 1}]. Start with a source, as in pipe(from_examples(rows), ...).",
    ),
    (
        lambda: pipe(ROWS, unbatch()),
        PipelineError,
        "unbatch() takes groups, got examples from from_table(3 rows). Put batch(size) before it.",
    ),
    (
        lambda: pipe(ROWS, batch(2), batch(2)),
        PipelineError,
        "batch(size=2) takes examples, got groups from batch(size=2). Move it before batch, or put unbatch() before it.",
    ),
    (
        lambda: pipe(ROWS, batch(2))[0],
        PipelineError,
        "dataset[0] needs single examples, got groups from batch(size=2). Write next(iter(groups)), or print(fp.inspect.preview(groups)).",
    ),
    (
        lambda: pipe(ROWS, batch(2), fp.collate(dict))[0],
        PipelineError,
        (
            "dataset[0] needs single examples, got batches from collate(collator=dict). Write next(iter(batches)), or "
            "print(fp.inspect.preview(batches))."
        ),
    ),
    (
        lambda: pipe(from_iterable([{"x": 1}]), fp.template("{txt}"))[0],
        SchemaError,
        "template('{txt}') needs the column 'txt', which is missing. Columns: 'x'.",
    ),
    (
        lambda: pipe(ROWS, filter(bool))[0],
        PipelineError,
        "dataset[0] needs random access, but filter(predicate=bool) has no random access. Put load() or cache(path) after this part.",
    ),
    (
        lambda: from_chunks([pa.record_batch({"x": [1]})])[0],
        PipelineError,
        "dataset[0] needs random access, but from_chunks([1]) has no random access. Put load() or cache(path) after this part.",
    ),
    (
        lambda: schema(pipe(ROWS, select_columns(["y"]))),
        SchemaError,
        "select_columns needs the column 'y', which is missing. Columns: 'x'.",
    ),
    (
        lambda: schema(pipe(ROWS, rename_columns({"x": "__row__"}))),
        SchemaError,
        "The new name '__row__' in rename_columns is reserved or used by several columns. Choose another name.",
    ),
    (
        lambda: list(pipe(ROWS, map(len))),  # type: ignore[arg-type]  # the mistake
        ArgumentTypeError,
        (
            "The function of map(function=len) must return a mapping, got int for source row 0. "
            'Return a dict of columns, as in {**row, "x": 1}.'
        ),
    ),
    (
        lambda: list(pipe(ROWS, map_chunks(len))),  # type: ignore[arg-type]  # the mistake
        ArgumentTypeError,
        ("len must return a pyarrow.RecordBatch, got int, in map_chunks(function=len). For a data frame write pa.record_batch(frame)."),
    ),
    # cursors and identity
    (
        lambda: iterate(pipe(ROWS, batch(2)), next(iterate(ROWS))[1]),
        CursorMismatchError,
        (
            "The cursor belongs to another pipeline. First difference: the cursor has nothing there, the pipeline batch(size=2) as part 2. "
            "Iterate over the pipeline that made the cursor, or start this pipeline without a cursor."
        ),
    ),
    (
        lambda: Cursor.from_bytes(b"{}"),
        CursorError,
        "These bytes are not a cursor: they start with b'{}', not b'MLXFPCUR'. Pass the bytes returned by Cursor.to_bytes().",
    ),
    (lambda: Cursor.from_bytes("{}"), ArgumentTypeError, "Cursor.from_bytes needs bytes, got str."),  # type: ignore[arg-type]  # the mistake
    (
        lambda: fingerprint(iter("a")),
        FingerprintError,
        (
            "A value of type str_ascii_iterator has no fingerprint: <str_ascii_iterator object>. Use a frozen attrs class or "
            "dataclass, define a method __fingerprint__ that returns an identifying plain value, or create the value inside the "
            "function that uses the value."
        ),
    ),
    (
        lambda: Examples(pa.record_batch({"age": [1]})).column("Age"),
        UnknownNameError,
        "No column is named 'Age'. Did you mean 'age'? Known: age.",
    ),
    # results of functions, and groups outside a pipeline
    (
        lambda: list(pipe(ROWS, fp.flat_map(len))),
        ArgumentTypeError,
        "The function of flat_map(function=len) must return a list of mappings, got int. Return [row], or [] to drop the row.",
    ),
    (
        lambda: list(pipe(from_table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}), fp.map(dict))),
        SchemaError,
        (
            "Column 'm' of row 0: [('a', 1)] is a list of pairs, as in a column of maps. Declare the type with schema=, for example "
            "pa.map_(pa.string(), pa.int64())."
        ),
    ),
    *[
        (partial(collator, group), ArgumentTypeError, f"A collator takes a list of rows, got {found}. For a single row, pass [row].")
        for collator in (fp.collators.causal(pad_id=0), fp.collators.default(), fp.collators.foreign(dict))
        for group, found in [(None, "NoneType: None"), (5, "int: 5"), ({"x": [1]}, "dict: {'x': [1]}")]
    ],
    (
        lambda: fp.collators.foreign(dict)([7]),
        ArgumentTypeError,
        "A collator takes mappings, got int at index 0 of the group: 7.",
    ),
    *[
        (partial(collator, **arguments), ArgumentError, f"{collator.__name__}: {message}, got {name}={value}.")
        for name, value in [("pad_id", 2**31), ("pad_id", -(2**31) - 1), ("ignore_index", 2**40)]
        for message in [f"{name} must be a 32-bit integer, as the ids of a batch are"]
        for collator, others in IDS.items()
        if name == "pad_id" or collator in (fp.collators.causal, fp.collators.masked, fp.collators.preference)
        for arguments in [others | {"pad_id": 0, name: value}]
    ],
    # arguments of other rooms, by their public names
    (lambda: fp.batch_by_tokens(0), ArgumentError, "batch_by_tokens: tokens must be at least 1, got tokens=0."),
    (
        lambda: fp.bucket_by_length(lengths=[8, 16], size=4, tokens=64),
        ArgumentError,
        "bucket_by_length takes either size or tokens, got size=4 and tokens=64.",
    ),
    (
        lambda: fp.windows(8, stride=9),
        ArgumentError,
        "windows: stride=9 would skip tokens between windows of length=8. Use a stride of at most length.",
    ),
    (
        lambda: fp.pack(8, method="split", open_rows=3),
        ArgumentError,
        (
            'pack: method="split" fills one row after the other and takes no open_rows, got open_rows=3. Remove open_rows, or choose '
            "another method."
        ),
    ),
    (
        lambda: fp.shuffle(files=2, seed=0),
        ArgumentError,
        "shuffle(files=2) needs a buffer for the rows of the open files. Add buffer=n, or remove files= for an exact shuffle of all rows.",
    ),
    (
        lambda: fp.split([0.5, 0.6], seed=0),
        ArgumentError,
        "split: fractions must be at least two positive numbers that add up to 1, got [0.5, 0.6].",
    ),
    (
        lambda: fp.split([80, 20], seed=0),
        ArgumentError,
        "split: fractions must be at least two positive numbers that add up to 1, got [80, 20]. Write [0.8, 0.2].",
    ),
    (
        lambda: fp.train_valid_test(ROWS, valid=20, test=10, seed=0),
        ArgumentError,
        (
            "Every part needs a share above 0, got valid=20 and test=10, which leaves -29 to train on. "
            "Write percentages as fractions: valid=0.2, test=0.1."
        ),
    ),
    (lambda: fp.split(0.8, seed=0), ArgumentTypeError, "split: fractions must be a list, got 0.8. Write fractions=[0.8, 0.2]."),
    (
        lambda: fp.select([]),
        ArgumentError,
        "select needs at least one index, got none. To keep the rows that meet a condition, use filter.",
    ),
    (
        lambda: fp.select([-1]),
        ArgumentError,
        "select: indices must be at least 0, got -1. The n-th row from the end is length(dataset) - n.",
    ),
    (
        lambda: fp.select([[0, 1]]),
        ArgumentTypeError,
        "select: indices must be a flat sequence of integers, got int64[1, 2]: array([[0, 1]]). Pass a list of row numbers.",
    ),
    (lambda: fp.concat([]), ArgumentError, "concat takes a list of at least one dataset, got []."),
    (lambda: fp.concat(ROWS), ArgumentError, "concat takes a list of at least one dataset, got pipe(from_table(3 rows))."),
    (lambda: fp.shard(3, 3), ArgumentError, "shard: index must be from 0 to 2, got index=3 of count=3."),
    (
        lambda: fp.filter_by([]),
        ArgumentError,
        "filter_by needs at least one condition, got none. Write conditions as in [('age', '>', 18), ('sex', 'in', ['male', 'female'])].",
    ),
    (
        lambda: fp.filter_by(["x"]),
        ArgumentTypeError,
        "A condition is (column, operator, value), got 'x'. Write conditions as in [('age', '>', 18), ('sex', 'in', ['male', 'female'])].",
    ),
    (
        lambda: fp.filter_by([("x", "in", 3)]),
        ArgumentTypeError,
        "The value of 'in' is a sequence of values, got 3 for 'x'. For a single value use '=='.",
    ),
    (
        lambda: fp.filter_by([("x", "==", None)]),
        ArgumentError,
        "A condition needs a value to compare with, got None for 'x'. A missing value meets no condition.",
    ),
    (
        lambda: fp.on_error("skip", max_rate=2.0),
        ArgumentError,
        'on_error: max_rate must be above 0 and at most 1, got 2.0. To allow no error, use on_error("raise").',
    ),
    (
        lambda: fp.from_table([1]),
        ArgumentTypeError,
        (
            "from_table needs a table with __arrow_c_stream__ or a mapping of columns, got list. Use from_examples for a list "
            "of dicts, or from_iterable for an iterable of dicts."
        ),
    ),
    (
        lambda: fp.from_table(pa.array([1])),
        ArgumentTypeError,
        "from_table needs a name for the column, got a Int64Array with the name None. Give a name with from_table({'x': column}).",
    ),
    (lambda: fp.from_examples({"x": [1]}), ArgumentTypeError, "from_examples takes rows, got columns: 'x'. Write fp.from_table(columns)."),
    (
        lambda: fp.from_iterable(iter([{}])),
        ArgumentTypeError,
        (
            "from_iterable needs an iterable that can be iterated repeatedly, got the one-pass list_iterator. Pass a list, or "
            "a function as in from_iterable(lambda: (... for ...))."
        ),
    ),
    (lambda: fp.read_csv([]), ArgumentError, "read_csv: path must name at least one file, got []."),
    (lambda: fp.read_csv(3), ArgumentTypeError, "read_csv: path must be a path, a pattern, a folder or a sequence of these, got int: 3."),
    (
        lambda: fp.read_csv("none.csv", delimiter=";;"),
        ArgumentError,
        "read_csv: delimiter must be one ASCII character other than a newline, got delimiter=';;'.",
    ),
    (
        lambda: fp.read_csv("none.csv", delimiter="x", quote="x"),
        ArgumentError,
        "read_csv: delimiter and quote must differ, got 'x' for both.",
    ),
    (
        lambda: fp.read_csv("none.csv", encoding="utf-16"),
        ArgumentError,
        (
            "read_csv: encoding must be utf-8 or a single-byte extension of ASCII, got 'utf-16'. Use 'cp1252' or 'latin-1', or convert "
            "the file to UTF-8, for example with iconv."
        ),
    ),
    (
        lambda: fp.read_csv("none.csv", schema=3),
        ArgumentTypeError,
        'read_csv: schema must map column names to Arrow types, or be "scan", got int: 3.',
    ),
    (
        lambda: fp.read_csv("none.csv", schema={"x": int}),
        ArgumentTypeError,
        "read_csv: schema must map column names to Arrow types, for example {'age': pa.float64()}, got {'x': <class 'int'>}.",
    ),
    (
        lambda: fp.template("{}"),
        ArgumentError,
        "The template '{}', field {}: a field needs a column name, got ''. Write for example {Age}.",
    ),
    (
        lambda: fp.template("{x"),
        ArgumentError,
        "The template '{x' is not a format string: expected '}' before end of string. Write {{ and }} for literal braces.",
    ),
    (
        lambda: fp.template("{x.y}"),
        ArgumentError,
        (
            "The template '{x.y}', field {x.y}: a template cannot access attributes or items of a value. If 'x.y' is a "
            "column name, rename the column with rename_columns. Otherwise, create a column for the value with map."
        ),
    ),
    (lambda: fp.template("{x!z}"), ArgumentError, "The template '{x!z}', field {x}: the conversion must be !r, !s or !a, got !z."),
    (
        lambda: fp.template("{x:{y}}"),
        ArgumentError,
        "The template '{x:{y}}', field {x}: the format after the colon must not contain a field, got '{y}'. Write a number instead.",
    ),
    (
        lambda: fp.template("Say {x}.", seed=0),
        ArgumentError,
        (
            "template: seed= shuffles phrases with fields, but template('Say {x}.') has only 1. Separate phrases by one of . , ; | ! ? "
            "or a line end, or omit seed."
        ),
    ),
    (lambda: fp.template("Say {x}.", into=""), ArgumentError, "template: into='' is empty or a reserved column name. Choose another name."),
    (lambda: fp.tokenize(3), ArgumentTypeError, 'tokenize: tokenizer must be Tokenizer, got int: 3. Pass fp.load_tokenizer("folder").'),
    (
        lambda: fp.load_tokenizer("none"),
        MissingFileError,
        (
            "No tokenizer is at 'none'. Pass the path of a tokenizer.json file or of the folder of a model, or a name on the hub, such as "
            "google-bert/bert-base-uncased."
        ),
    ),
    (lambda: fp.load_tokenizer(3), ArgumentTypeError, 'path must be str or PathLike, got int: 3. Pass fp.load_tokenizer("folder").'),
    (
        lambda: fp.kaggle.folds.kfold(3, count=4, seed=0),
        ArgumentError,
        (
            "kfold needs from 2 to 3 folds, because there are 3 rows, got count=4. In a configuration, the number of folds is "
            "validation.folds."
        ),
    ),
    (
        lambda: fp.kaggle.folds.custom([0, 2]),
        ArgumentError,
        "assignments must contain every fold number from 0 to the highest (-1 means no fold), got [0, 2].",
    ),
    (
        lambda: fp.kaggle.folds.custom([0, 0]),
        ArgumentError,
        "assignments must leave rows to train on, got all rows in fold 0. Use at least two folds.",
    ),
    (
        lambda: fp.kaggle.folds.custom([0.5]),
        ArgumentTypeError,
        (
            "assignments must be whole numbers: the fold number of each row. The shape must be [N], or [R, N] for R repeats. "
            "Got float64[1, 1]: array([[0.5]])."
        ),
    ),
    (
        lambda: fp.kaggle.folds.custom([0, 1, 1], groups=["a", "a", "b"]),
        ArgumentError,
        "Each group must be in exactly one fold, got group a in several folds.",
    ),
    (
        lambda: fp.kaggle.folds.time([1, 1, 2], count=2),
        ArgumentError,
        "Folds by time need more distinct times than folds, got 2 times for count=2. Reduce count.",
    ),
    (lambda: fp.kaggle.folds.stratified([0, 1], count=2, seed=0, repeats=0), ArgumentError, "repeats must be at least 1, got repeats=0."),
    (lambda: fp.kaggle.folds.grouped([[1]], count=2, seed=0), ArgumentTypeError, "groups must be one value per row, [N], got int64[1, 1]."),
    (
        lambda: fp.kaggle.folds.grouped([1.0, float("nan")], count=2, seed=0),
        ArgumentError,
        "groups must not be missing, got nan in row 1. Fill in missing values.",
    ),
    (
        lambda: fp.kaggle.METRICS["rmsle"]([1.0], [-2.0]),
        DataError,
        "rmsle needs values above -1, got a value of -2. Clip predictions at 0.",
    ),
    (lambda: fp.kaggle.METRICS["log_loss"]([0.0, 1.0], [2.0, 0.5]), DataError, "log_loss needs probabilities, got values from 0.5 to 2."),
    (
        lambda: fp.kaggle.METRICS["accuracy"]([0.0], [float("nan")]),
        DataError,
        "The predictions for accuracy must be finite, got nan in row 0.",
    ),
    (
        lambda: fp.kaggle.METRICS["acuracy"],
        UnknownNameError,
        (
            "No metric is named 'acuracy'. Did you mean 'accuracy'? Known: accuracy, f1, f1_macro, f1_micro, log_loss, mae, "
            "map_at_3, map_at_5, mcc, qwk, r2, rmse, rmsle, roc_auc, spearman."
        ),
    ),
    (
        lambda: fp.kaggle.METRICS["spearman"]([1.0, 1.0], [1.0, 2.0]),
        DataError,
        "spearman is undefined: all 2 targets are equal to 1. Use rmse or mae.",
    ),
    (
        lambda: fp.kaggle.METRICS["f1"]([0.0, 2.0], [0.0, 1.0]),
        ArgumentError,
        "f1 needs the labels 0 and 1, got other labels. Use f1_macro or f1_micro.",
    ),
    (
        lambda: fp.kaggle.SPECS["titanik"],
        UnknownNameError,
        "No data set is named 'titanik'. Did you mean 'titanic'? Known: disaster_tweets, house_prices, spaceship_titanic, titanic.",
    ),
    (lambda: fp.kaggle.ColumnSpec(name="", type="text"), ArgumentError, "A column needs a name and a title, got name='', title=''."),
    (
        lambda: fp.kaggle.ColumnSpec(name="age", type="numerical", values={"1": "one"}),
        ArgumentError,
        "Column 'age' is numerical, but only categorical columns can have values. Set type='categorical' or omit values.",
    ),
    (lambda: fp.kaggle.FileSpec(name="a.csv", rows=-1), ArgumentError, "rows must be at least 0, got rows=-1."),
    (lambda: fp.kaggle.load_spec("none.yaml"), MissingFileError, "There is no spec at 'none.yaml'. Give the path of a YAML or JSON file."),
    (
        lambda: fp.kaggle.load_estimator("none"),
        MissingFileError,
        "'none' has no estimator: recipe.json is missing. Give a folder written by save_estimator.",
    ),
    (
        lambda: fp.kaggle.check_submission("none.csv", sample="none.csv"),
        MissingFileError,
        "There is no file at 'none.csv'. Give the path of a CSV file with a header.",
    ),
    (
        lambda: fp.kaggle.submit("none.csv", "titanic", message="first", yes=False),
        MissingFileError,
        "There is no submission at 'none.csv'. Write one first: submission(...).write(path).",
    ),
    (lambda: fp.kaggle.ensembles.weighted([0.0]), ArgumentError, "weights must be numbers of at least 0 with a sum above 0, got [0.0]."),
    (
        lambda: fp.kaggle.ensembles.mean([[1.0], [1.0, 2.0]]),
        ArgumentError,
        "All predictions must have the same shape, [N] or [N, C], got [[1], [2]].",
    ),
    (
        lambda: fp.kaggle.ensembles.stacking(3),
        ArgumentError,
        "stacking takes a scikit-learn estimator, got 3. Create one, such as LogisticRegression().",
    ),
    (
        lambda: fp.kaggle.threshold(fp.kaggle.METRICS["rmse"]),
        ArgumentError,
        "A threshold needs a metric that scores labels, but rmse scores values. Remove the threshold.",
    ),
    (
        lambda: fp.kaggle.class_weights(fp.kaggle.METRICS["rmse"]),
        ArgumentError,
        "Class weights need a metric that scores labels, but rmse scores values. Remove the class weights.",
    ),
    (
        lambda: fp.kaggle.Confidence(threshold=2.0),
        ArgumentError,
        "Confidence needs 0 < threshold <= 1 and 0 <= least <= most <= 1, got threshold=2.0, least=0.05, most=0.6.",
    ),
    (
        lambda: fp.runs.load_config("titanic"),
        ConfigError,
        "There is no file 'titanic', but a preset has this name. Write load_config(preset='titanic').",
    ),
    (
        lambda: fp.runs.load_config(overrides="name=x"),
        ConfigError,
        "overrides must be a list of strings, got str. Write overrides=['name=x'].",
    ),
    (
        lambda: fp.runs.load_config(overrides=["name"]),
        ConfigError,
        "'name' is not of the form key.sub=value. Write, for example, training.epochs=3.",
    ),
    (
        lambda: fp.runs.load_config(overrides=["epochs=3"]),
        ConfigError,
        "A mistake in the configuration:\n  epochs (command line): unknown key; did you mean 'training.epochs'?",
    ),
    (
        lambda: fp.runs.RunConfig(epochs=3),
        ArgumentTypeError,
        (
            "RunConfig has no option 'epochs'. Write TrainingConfig(epochs=...). Known: name, output, task, data, text, "
            "media, model, optimizer, schedule, training, observers, validation, competition, own."
        ),
    ),
    (
        lambda: fp.runs.predict("none", "none.csv"),
        MissingFileError,
        "'none' is not the folder of a run: config.yaml is missing. Give a folder written by mlxfp run.",
    ),
    (lambda: fp.runs.blend(["none"], "out"), ArgumentError, "A blend needs at least two runs, got 1. Add the folder of another run."),
    (lambda: fp.runs.compare(["none"]), ArgumentError, "A comparison needs at least two runs, got 1. Add the folder of another run."),
    (
        fp.runs.report,
        ArgumentError,
        "A report needs the folder of a run or a log of observers.log_metrics, got no path. Give at least one path.",
    ),
    (lambda: list(fp.runs.tune(fp.runs.RunConfig(name="x"))), ArgumentError, "tune needs a limit. Give trials=20 or minutes=10, or both."),
    (
        lambda: fp.losses.cross_entropy(mx.zeros((2, 3)), mx.zeros((2,))),
        ArgumentTypeError,
        "cross_entropy needs integer labels, got mlx.core.float32. Use losses.mse for numeric targets.",
    ),
    (
        lambda: fp.losses.cross_entropy(mx.zeros((2, 3)), mx.zeros((3,), mx.int32)),
        ArgumentError,
        (
            "cross_entropy needs one label for each row of logits, got logits of shape (2, 3) and labels of shape (3,). "
            "Logits need one axis more than labels: the last axis for classes."
        ),
    ),
    (
        lambda: fp.losses.cross_entropy(mx.zeros((2, 3)), mx.zeros((2,), mx.int32), label_smoothing=1.0),
        ArgumentError,
        "label_smoothing must be at least 0 and below 1, got label_smoothing=1.0.",
    ),
    (lambda: fp.losses.huber(mx.zeros((2,)), mx.zeros((2,)), delta=0.0), ArgumentError, "delta must be above 0, got delta=0.0."),
    (
        lambda: fp.losses.mse(mx.zeros((2, 1)), mx.zeros((2,))),
        ArgumentError,
        "mse needs predictions and targets of the same shape, got (2, 1) and (2,). If the model returns [B, 1], pass predictions[:, 0].",
    ),
    (
        lambda: fp.schedules.cosine_decay(1e-3, steps=10, warmup=10),
        ArgumentError,
        "warmup must be less than steps, got warmup=10 and steps=10.",
    ),
    (lambda: fp.schedules.linear_decay("a", steps=10), ArgumentTypeError, "rate must be a number, got rate='a'."),
    (lambda: fp.schedules.linear_decay(-1.0, steps=10), ArgumentError, "rate must be a finite number of at least 0, got rate=-1.0."),
    (fp.optimizers.matching, ArgumentError, "matching needs at least one pattern, as in matching('body.*')."),
    (
        lambda: fp.observers.checkpoint("folder", steps=1, seconds=1.0),
        ArgumentError,
        "Pass steps or seconds, got steps=1 and seconds=1.0. For both, use checkpoint twice.",
    ),
    (lambda: fp.observers.checkpoint("folder", seconds=0.0), ArgumentError, "checkpoint: seconds must be above 0, got seconds=0.0."),
    (
        lambda: fp.observers.log_metrics("log.txt"),
        ArgumentError,
        "A log is a .jsonl file, got 'log.txt'. Use this suffix.",
    ),
    (lambda: fp.collators.multimodal([]), ArgumentError, "multimodal combines at least two collators, got 0."),
    (
        lambda: fp.collators.masked(pad_id=0, mask_id=30, vocab_size=30, special_ids=[], seed=0),
        ArgumentError,
        "masked: mask_id holds the id 30, but the vocabulary has 30 tokens. Take mask_id and vocab_size from the same tokenizer.",
    ),
    (
        lambda: fp.collators.masked(pad_id=0, mask_id=1, vocab_size=30, special_ids=[], seed=0, rate=0.0),
        ArgumentError,
        "masked: rate must be above 0 and at most 1, got rate=0.0.",
    ),
    (
        lambda: fp.collators.text(pad_id=0, length=8, pad_multiple=8),
        ArgumentError,
        "A fixed length needs no pad_multiple, got length=8 and pad_multiple=8. Remove one of these arguments.",
    ),
    (
        lambda: fp.collators.text(pad_id=0, lengths=[8], length=8),
        ArgumentError,
        "text: lengths=[8] already gives all padded lengths. Remove length and pad_multiple.",
    ),
    (
        lambda: fp.collators.vision(normalization="imagenet"),
        ArgumentTypeError,
        "vision: normalization must be a Normalization, got 'imagenet'. Write fp.collators.NORMALIZATIONS['imagenet'].",
    ),
    (lambda: fp.collators.vision(size=3), ArgumentError, "vision: size must be (height, width), got 3."),
    (
        lambda: fp.collators.NORMALIZATIONS["imagnet"],
        UnknownNameError,
        "No normalization is named 'imagnet'. Did you mean 'imagenet'? Known: cifar10, imagenet, mnist.",
    ),
    (
        lambda: fp.collators.vision(label="label", classes=[]),
        ArgumentError,
        "vision: classes must have at least one name, got an empty list. Write the names of all classes in a fixed order.",
    ),
    (lambda: fp.train_step(None, None, None), ArgumentTypeError, "loss must be a function, got loss=None."),
    (
        lambda: fp.lift(fp.batch(2), key="id", offset=4),
        ArgumentTypeError,
        "lift() got an unexpected keyword argument 'offset'. Call it as lift(recipe); optional arguments: key.",
    ),
    (
        lambda: fp.models.create("bert", size="huge"),
        UnknownNameError,
        "No size is named 'huge'. Known: base, large, medium, mini, small, tiny.",
    ),
    (
        lambda: fp.models.load("none"),
        MissingFileError,
        ("There is no config.json in 'none'. Pass the folder of a model, or a name on the hub, such as google-bert/bert-base-uncased."),
    ),
    (lambda: fp.models.lora(3), ArgumentTypeError, "model must be an mlx.nn.Module, got int: 3."),
    (lambda: fp.mix([ROWS, ROWS], [1.0]), ArgumentError, "mix needs one weight for each of the 2 datasets, got [1.0]."),
    (lambda: fp.mix([ROWS, ROWS], [0.0, 0.0]), ArgumentError, "mix: weights must be at least 0 and not all 0, got [0.0, 0.0]."),
    (lambda: fp.drop_fields(2.0, ["x"], seed=0), ArgumentError, "drop_fields: rate must be from 0 to 1, got 2.0."),
    (
        lambda: fp.pipe(ROWS, fp.batch(2), fp.shuffle(seed=0, files=2)),
        ArgumentError,
        "shuffle(files=2) needs a buffer for the rows of the open files. Add buffer=n, or remove files= for an exact shuffle of all rows.",
    ),
    (
        lambda: fp.audio.log_mel(rate=0),
        ArgumentTypeError,
        (
            "log_mel() missing 1 required positional argument: 'spectrogram'. Call it as log_mel(spectrogram); optional "
            "arguments: waveform, features, rate."
        ),
    ),
    (lambda: fp.images.resize(3), ArgumentError, "resize: size must be (height, width), got 3."),
    (
        lambda: fp.kaggle.ColumnSpec(name="age", type="number"),
        UnknownNameError,
        "No type is named 'number'. Did you mean 'numerical'? Known: categorical, numerical, text.",
    ),
    (
        lambda: fp.runs.resume("none"),
        MissingFileError,
        "'none' is not the folder of a run: config.yaml is missing. Give a folder written by mlxfp run.",
    ),
    (
        lambda: list(fp.runs.resume("none")),
        MissingFileError,
        "'none' is not the folder of a run: config.yaml is missing. Give a folder written by mlxfp run.",
    ),
    (
        lambda: fp.last([]),
        ArgumentError,
        "last(events) got no events. An event stream can be read only once. Call fit again for a new stream.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), CASES, ids=[text[:50] for _, _, text in CASES])
def test_the_message_is(call: Callable[[], Any], kind: type[Exception], text: str):
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    found = str(caught.value)
    address = found.find(" at 0x")
    found = found if address < 0 else found[:address] + found[found.index(">", address) :]
    assert found == text
