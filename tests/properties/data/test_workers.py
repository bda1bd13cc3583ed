"""Workers change nothing that can be seen: items, cursors, errors; and leave nothing behind."""

import fcntl
import gc
import os
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.arrow.content import content_bits
from mlxfp.data.rows.map_filter import filter, map, take
from mlxfp.data.running import processes
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, UnknownNameError, WorkerError
from mlxfp.testing.laws import assert_runners_agree
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import pipelines, tables
from tests.data.left_running import no_thread_left, run_script
from tests.properties.data.test_battery import COMPLETE, MEMBERS, SIX_ROWS, SOURCES, Member, every_member, every_source

NUMBERS = pa.schema({"x": pa.int64()})
THREADS = st.builds(lambda depth, workers: fp.prefetch(depth, workers=workers), st.integers(1, 16), st.integers(2, 4))


def numbers(count):
    return fp.from_table({"x": np.arange(count)})


def doubled(row):
    return {"x": row["x"] * 2}


def noisy(row, random):
    return {"x": row["x"], "noise": float(random.random())}


def fails_at_seven(row):
    if row["x"] == 7:
        raise ValueError("seven")
    return row


def in_threes(table):
    return table.to_batches(max_chunksize=3) or [pa.RecordBatch.from_pylist([], schema=table.schema)]


@every_member
@settings(max_examples=8)
@given(data=st.data(), workers=THREADS)
def test_every_stage_gives_the_same_with_threads(member: Member, data, workers):
    table, epoch = data.draw(tables(COMPLETE)), data.draw(st.integers(0, 2))
    for dataset in (member.stage(fp.from_table(table)), member.stage(from_chunks(in_threes(table)))):
        with no_thread_left():
            assert_runners_agree(dataset, workers, epoch=epoch)


@every_source
@settings(max_examples=8)
@given(data=st.data(), workers=THREADS)
def test_every_source_gives_the_same_with_threads(make, data, workers):
    dataset = make(data.draw(tables(COMPLETE)))
    assert_runners_agree(fp.pipe(dataset, map(dict)), workers)
    if dataset.indexable:
        assert_runners_agree(fp.pipe(dataset, map(dict), fp.shuffle(seed=1), fp.batch(3)), workers, epoch=1)


@settings(max_examples=20)
@given(dataset=pipelines(), workers=THREADS)
def test_drawn_pipelines_give_the_same_with_threads(dataset, workers):
    with no_thread_left():
        assert_runners_agree(dataset, workers)


IN_PROCESSES = {
    "map",
    "map, random",
    "map of groups",
    "filter_by",
    "flat_map",
    "shuffle",
    "drop_tokens",
    "load and shuffle",
    "cache",
    "on_error",
    "mix",
}


@pytest.mark.parametrize("member", [each for each in MEMBERS if each.name in IN_PROCESSES], ids=lambda member: member.name)
def test_stages_give_the_same_in_processes(member: Member):
    assert_runners_agree(member.stage(fp.from_table(SIX_ROWS)), fp.prefetch(3, workers=2, kind="processes"))


@pytest.mark.parametrize("name", ["from_table, views", "from_iterable", "from_torch", "from_hf"])
def test_sources_give_the_same_in_processes(name):
    assert_runners_agree(fp.pipe(SOURCES[name](SIX_ROWS), map(dict), fp.batch(2)), fp.prefetch(3, workers=1, kind="processes"))


@settings(max_examples=15)
@given(count=st.integers(0, 60), size=st.integers(1, 9), workers=THREADS)
def test_an_error_is_raised_at_the_same_item_with_the_same_notes(count, size, workers):
    chunks = [pa.record_batch({"x": np.arange(first, min(first + size, count))}) for first in range(0, max(1, count), size)]
    failing = fp.pipe(from_chunks(chunks), map(doubled, schema=NUMBERS), map(fails_at_fourteen, schema=NUMBERS), fp.batch(4))
    assert_runners_agree(failing, workers)
    notes = []
    for line in (fp.prefetch(1), workers):
        try:
            list(line(failing))
        except ValueError as error:
            notes.append(error.__notes__)
    assert not notes or notes[0] == notes[1]


def fails_at_fourteen(row):
    if row["x"] == 14:
        raise ValueError("fourteen")
    return row


@frozen(repr=False)
class Every(fp.Stage):
    """Keeps how many rows it has seen in a state that begins as (), as if there were none."""

    count: int

    def step(self, state, chunk):
        seen = state[0] if state else 0
        kept = (np.arange(seen, seen + chunk.num_rows) % self.count) == 0
        return (seen + chunk.num_rows,), (chunk.filter(pa.array(kept)),)


@settings(max_examples=20)
@given(workers=THREADS, every=st.integers(1, 5), size=st.integers(1, 30))
def test_a_stage_that_does_not_say_that_it_keeps_something_is_right_all_the_same(workers, every, size):
    chunks = [pa.record_batch({"x": np.arange(first, first + size)}) for first in range(0, 90, size)]
    dataset = fp.pipe(from_chunks(chunks), map(doubled, schema=NUMBERS), Every(every), map(dict, schema=NUMBERS), fp.batch(4))
    assert_runners_agree(dataset, workers)


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_rows_that_fail_are_skipped_and_listed_as_without_workers(kind):
    rows = fp.pipe(numbers(40), map(fails_at_seven), fp.shuffle(seed=1), fp.on_error("skip", max_rate=1.0), fp.batch(4))
    lists = []
    for line in (fp.prefetch(1), fp.prefetch(2, workers=2, kind=kind)):
        *_, (_, cursor) = fp.iterate(line(rows))
        lists.append([(each.origin.row, each.stage, each.reason) for each in fp.inspect.skipped_rows(line(rows), cursor)])
    assert lists[0] == lists[1]
    assert len(lists[0]) == 1
    assert_runners_agree(rows, fp.prefetch(2, workers=2, kind=kind))


def test_workers_are_no_part_of_the_value():
    one, many = (
        fp.pipe(numbers(20), map(noisy, seed=0), fp.batch(3), line)
        for line in (fp.prefetch(2), fp.prefetch(5, workers=3, kind="processes"))
    )
    assert one == many
    assert hash(one) == hash(many)
    assert fp.inspect.fingerprint(one) == fp.inspect.fingerprint(many)
    assert repr(many).endswith("prefetch(depth=5, workers=3, kind='processes'))")


def test_work_below_joined_shuffled_repeated_and_cached_rows_is_shared(tmp_path):
    def thread(row):
        time.sleep(0.002)
        return {"x": row["x"], "thread": threading.current_thread().name}

    schema = pa.schema({"x": pa.int64(), "thread": pa.string()})
    mapped = fp.pipe(numbers(60), map(thread, schema=schema))
    datasets = {
        "shuffled": fp.pipe(mapped, fp.shuffle(seed=0)),
        "joined": fp.concat([mapped, mapped]),
        "mixed": fp.mix([mapped, fp.pipe(mapped, filter(bool))], [1, 2], stop="all"),
        "repeated": fp.pipe(mapped, fp.repeat(2)),
        "loaded": fp.pipe(mapped, fp.load(), fp.shuffle(seed=0)),
        "cached": fp.pipe(mapped, fp.cache(tmp_path)),
        "grouped": fp.pipe(mapped, fp.batch(7), fp.repeat(2)),
    }
    for name, dataset in datasets.items():
        rows = [row for item in fp.pipe(dataset, fp.prefetch(4, workers=3)) for row in (item if name == "grouped" else [item])]
        names = {row["thread"].rpartition("_")[0] for row in rows}
        assert names == {"mlxfp-worker"}, name
        assert len({row["thread"] for row in rows}) > 1, name


def test_slow_rows_of_one_chunk_are_worked_on_at_the_same_time():
    together = threading.Barrier(4, timeout=20)  # breaks unless four threads meet
    rows = fp.pipe(numbers(4), map(lambda row: {"x": together.wait() and row["x"]}, schema=NUMBERS), fp.prefetch(1, workers=4))
    assert len(list(rows)) == 4


def test_processes_take_functions_of_any_kind_and_never_see_mlx():
    offset = 3

    def seen(row):
        import sys

        return {"x": row["x"] + offset, "mlx": "mlx.core" in sys.modules, "process": os.getpid()}

    rows = list(fp.pipe(numbers(50), map(lambda row: {**row}), map(seen), fp.prefetch(2, workers=2, kind="processes")))
    assert [row["x"] for row in rows] == list(range(3, 53))
    assert not any(row["mlx"] for row in rows)
    assert os.getpid() not in {row["process"] for row in rows}


def test_garbage_is_collected_while_processes_work():
    rows = fp.pipe(fp.from_table({"x": range(4)}), map(lambda row: {"collects": gc.isenabled()}), fp.prefetch(2, kind="processes"))
    assert list(rows) == [{"collects": True}] * 4


def test_items_of_torch_datasets_and_files_are_read_in_processes(tmp_path):
    class Items:
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return {"x": index, "process": os.getpid()}

    rows = list(fp.pipe(fp.from_torch(Items()), fp.shuffle(seed=0), fp.prefetch(2, workers=2, kind="processes")))
    assert sorted(row["x"] for row in rows) == list(range(40))
    assert os.getpid() not in {row["process"] for row in rows}
    for number in range(30):
        (tmp_path / f"{number}.png").write_bytes(b"%d" % number)
    assert_runners_agree(fp.pipe(fp.read_images(tmp_path), fp.shuffle(seed=3), fp.batch(4)), fp.prefetch(2, workers=2, kind="processes"))


def test_large_chunks_travel_through_files_that_are_gone_afterwards():
    wide = map(lambda row: {"x": np.full(100_000, row["x"])})
    rows = fp.pipe(numbers(20), wide, fp.batch(4), fp.prefetch(2, workers=2, kind="processes"))
    items = iter(rows)
    first = next(items)
    assert [int(row["x"][0]) for row in first] == [0, 1, 2, 3]
    items.close()
    assert [int(row["x"][-1]) for row in first] == [0, 1, 2, 3]  # what was read stays
    assert not folders()


def folders(process=None):
    places = [Path(place) for place in ("/dev/shm", tempfile.gettempdir()) if Path(place).is_dir()]
    return {path for place in places for path in place.glob(f"mlxfp-{process or os.getpid()}-*")}


def children():
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == os.getpid() and "Z" not in stat.read_text().rpartition(")")[2].split()[0]:
            found.append(int(stat.parent.name))
    return found


linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc, which this system lacks")


@linux
def test_nothing_is_left_after_an_early_stop_an_error_and_an_interrupt():
    def slow(row):
        time.sleep(0.01)
        return row

    def run(consume, function=slow):
        for row in fp.pipe(numbers(10_000), map(function, schema=NUMBERS), fp.repeat(None), fp.prefetch(2, workers=2, kind="processes")):
            consume(row)

    def interrupted(row):
        raise KeyboardInterrupt

    before = set(children())
    with no_thread_left():
        assert len(list(fp.pipe(numbers(10_000), map(slow, schema=NUMBERS), fp.prefetch(2, workers=2, kind="processes"), take(3)))) == 3
        with pytest.raises(KeyboardInterrupt):
            run(interrupted)
        with pytest.raises(ValueError, match="seven"):
            run(lambda row: None, fails_at_seven)
    assert not folders()
    assert not [child for child in set(children()) - before if b"loky" in command(child) and b"tracker" not in command(child)]


def command(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@linux
def test_a_worker_that_is_killed_is_an_error_that_names_its_rows():
    def dies(row):
        if row["x"] == 500:
            os.kill(os.getpid(), signal.SIGKILL)
        return row

    rows = fp.pipe(numbers(1000), map(dies, schema=NUMBERS), fp.batch(8), fp.prefetch(2, workers=2, kind="processes"))
    with no_thread_left(), pytest.raises(WorkerError) as caught:
        list(rows)
    found = [part.split(" ") for part in str(caught.value).split("working on: ")[1].split("; ")]
    assert any(int(words[4]) <= 500 < int(words[4]) + int(words[0]) for words in found if words[1] == "rows")
    assert "in map(function=" in str(caught.value)
    assert not folders()


@linux
def test_workers_end_when_the_process_that_reads_is_killed(tmp_path):
    code = f"""
import os, signal, time
import mlxfp as fp
print(os.getpid(), flush=True)
def slow(row):
    open({str(tmp_path)!r} + "/" + str(os.getpid()), "w").close()
    time.sleep(0.01)
    return row
for row in fp.pipe(fp.from_examples([{{"x": 1}}] * 5000), fp.map(slow), fp.prefetch(2, workers=2, kind="processes")):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    status, reader, errors = run_script(code)
    assert status == -signal.SIGKILL, errors
    reader = int(reader)
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert workers
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]
    while folders(reader) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not folders(reader)


class UnsendableError(Exception):
    def __init__(self, row, why):
        super().__init__(why)  # so that loading its pickle calls it with one argument


def fails_unsendably(row):
    if row["x"] == 7:
        raise UnsendableError(row, "seven")
    return row


def test_an_error_that_no_pickle_can_make_again_is_raised_as_without_workers():
    dataset = fp.pipe(numbers(20), map(fails_unsendably, schema=NUMBERS), fp.prefetch(2, workers=2, kind="processes"))
    with pytest.raises(UnsendableError, match="seven") as raised:
        list(dataset)
    assert "on source row 7: {'x': 7}" in raised.value.__notes__


def test_what_cannot_be_sent_is_an_error_that_names_the_stage():
    lock = threading.Lock()

    def guarded(row):
        with lock:
            return row

    with pytest.raises(
        WorkerError, match=r"A stage cannot be sent to another process: cannot pickle '_thread.lock' object, in map\(.*guarded"
    ):
        list(fp.pipe(numbers(3), map(guarded, schema=NUMBERS), fp.prefetch(2, kind="processes")))


class Unreadable:
    def __reduce__(self):
        return int, ("no number",)


def test_what_cannot_be_loaded_there_is_an_error_that_names_the_stage():
    held = Unreadable()
    dataset = fp.pipe(numbers(3), map(lambda row: {"text": str(type(held)), **row}), fp.prefetch(2, kind="processes"))
    message = r"cannot load its job: ValueError: invalid literal .*no number.*, for \d rows from row 0 on in map"
    with pytest.raises(WorkerError, match=message):
        list(dataset)


def test_a_script_needs_no_guard_and_its_functions_are_sent_by_value(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import sys
import mlxfp as fp
print("main")
factor = 3
def times(row):
    return {"x": row["x"] * factor}
rows = fp.pipe(fp.from_examples([{"x": x} for x in range(50)]), fp.map(times), fp.prefetch(2, workers=2, kind="processes"))
print(sum(row["x"] for row in rows))
""")
    status, out, errors = run_script(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    assert (status, out, errors) == (0, "main\n3675\n", "")


def test_python_exits_cleanly_while_processes_work():
    code = """
import os, sys
import mlxfp as fp
rows = fp.pipe(fp.from_examples([{"x": 1}] * 5000), fp.map(dict), fp.repeat(None))
items = iter(fp.pipe(rows, fp.batch(4), fp.prefetch(2, workers=2, kind="processes")))
next(items)
sys.modules["kept"] = [items]
print(os.getpid())
"""
    status, process, errors = run_script(code)
    assert (status, errors) == (0, "")
    assert not folders(int(process))


def test_explain_says_what_the_workers_do():
    rows = fp.pipe(numbers(9), map(doubled), fp.shuffle(seed=0), filter(bool), pack_free, fp.prefetch(2, workers=4))
    assert "4 threads share map(function=doubled), filter(predicate=bool)" in fp.explain(rows)
    alone = fp.pipe(numbers(9), fp.batch(2), fp.prefetch(2, workers=1, kind="processes"))
    assert "a process does nothing: no earlier stage is stateless" in fp.explain(alone)


def pack_free(rows):
    return fp.batch(4)(rows)


def test_profile_says_how_busy_workers_are_and_that_threads_wait_for_the_lock():
    def python(row):
        return {"x": sum(range(3000)) + row["x"]}

    found = fp.inspect.profile(fp.pipe(numbers(2000), map(python), fp.batch(8), fp.prefetch(2, workers=2)))
    line = next(part for part in found.parts if part.depth)
    assert line.workers == 2
    assert 0 < line.busy <= 1.01
    mapped = next(part for part in found.parts if part.part.startswith("map"))
    assert (mapped.count, mapped.seconds > 0) == (2000, True)
    there = fp.inspect.profile(fp.pipe(numbers(2000), map(python), fp.batch(8), fp.prefetch(2, workers=2, kind="processes")))
    mapped = next(part for part in there.parts if part.part.startswith("map"))
    assert (mapped.count, mapped.seconds > 0) == (2000, True)
    assert "2 workers busy" in str(there)


@settings(max_examples=60)
@given(data=st.data(), table=tables(COMPLETE))
def test_the_content_of_rows_adds_up(data, table):
    for chunk in table.to_batches():
        cut = data.draw(st.integers(0, chunk.num_rows))
        assert content_bits(chunk) == content_bits(chunk.slice(0, cut)) + content_bits(chunk.slice(cut))


def test_pieces_are_in_order_however_long_they_take():
    uneven = map(lambda row: time.sleep(0.02 * (row["x"] % 3)) or row, schema=NUMBERS)
    assert [row["x"] for row in fp.pipe(numbers(60), uneven, fp.prefetch(1, workers=4))] == list(range(60))


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"workers": 0}, ArgumentError, "workers must be at least 1, got workers=0."),
        ({"workers": None}, ArgumentTypeError, "workers must be an int, got workers=None."),
        ({"kind": "fibres"}, UnknownNameError, "No kind is named 'fibres'. Known: processes, threads."),
    ],
)
def test_bad_arguments_are_refused(options, kind, message):
    with pytest.raises(kind, match=message):
        fp.prefetch(2, **options)


def test_a_run_goes_on_with_other_workers():
    one, many = (fp.pipe(numbers(20), map(noisy, seed=0), fp.batch(3), fp.prefetch(2, workers=n)) for n in (1, 3))
    whole = list(fp.iterate(one))
    rest = [item for item, _ in fp.iterate(many, fp.Cursor.from_bytes(whole[2][1].to_bytes()))]
    assert rest == [item for item, _ in whole[3:]]


def test_packing_behind_workers_resumes_exactly():
    tokens = fp.from_table({"input_ids": [[x] * (1 + x % 5) for x in range(50)]})
    assert_runners_agree(fp.pipe(tokens, map(dict), fp.pack(7, open_rows=3), fp.batch(2)), fp.prefetch(3, workers=3))


def fails_after(count):
    def rows():
        yield from ({"x": x} for x in range(count))
        raise OSError("the line is dead")

    return fp.from_iterable(rows, schema=NUMBERS)


@pytest.mark.parametrize("count", [0, 300, 700])
def test_an_error_of_a_source_comes_after_the_rows_before_it(count):
    assert_runners_agree(fp.pipe(fails_after(count), map(doubled, schema=NUMBERS)), fp.prefetch(2, workers=3))


@frozen(repr=False)
class FailsByNumber(fp.Source):
    """Rows with random access, of which one cannot be read."""

    bad: int
    indexable = True

    def schema(self):
        return NUMBERS

    def length(self):
        return 100

    def take(self, epoch, indices):
        if self.bad in indices:
            raise OSError("a row cannot be read")
        return pa.record_batch({"x": indices})

    def read(self, epoch, position):
        yield self.take(epoch, np.arange(100)), 100


@pytest.mark.parametrize("bad", [2, 40, 99])
def test_rows_that_cannot_be_taken_are_an_error_at_the_same_item(bad):
    assert_runners_agree(
        fp.pipe(fp.Dataset(FailsByNumber(bad)), map(doubled, schema=NUMBERS), fp.shuffle(seed=0)), fp.prefetch(2, workers=2)
    )


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_padded_shards_and_joined_rows_in_another_order_are_shared(kind):
    mapped = fp.pipe(numbers(301), map(doubled, schema=NUMBERS))
    line = fp.prefetch(2, workers=2, kind=kind)
    assert_runners_agree(fp.pipe(mapped, fp.shard(1, 2, ends="pad")), line)
    assert_runners_agree(fp.pipe(fp.concat([mapped, fp.pipe(numbers(40), map(dict, schema=NUMBERS))]), fp.shuffle(seed=0)), line)


def test_rows_that_cannot_be_sent_are_an_error_that_names_a_cure():
    class Items:
        def __init__(self):
            self.lock = threading.Lock()

        def __len__(self):
            return 3

        def __getitem__(self, index):
            return {"x": index}

        def __fingerprint__(self):
            return "items"

    with pytest.raises(WorkerError, match=r"A task cannot be sent to another process: .*lock.*Use kind=\"threads\", or put load\(\)"):
        list(fp.pipe(fp.from_torch(Items()), fp.prefetch(2, workers=2, kind="processes")))


def test_the_folder_of_a_process_that_was_killed_is_removed_by_the_next(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(processes, "_IN_MEMORY", tmp_path / "absent")
    left, locked = tmp_path / "mlxfp-run-left", tmp_path / "mlxfp-run-locked"
    left.mkdir()
    locked.mkdir()
    descriptor = os.open(locked, os.O_RDONLY)  # as a running pool has it
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert len(list(fp.pipe(numbers(3), map(dict), fp.prefetch(1, kind="processes")))) == 3
    assert [path.name for path in tmp_path.iterdir()] == [locked.name]
    os.close(descriptor)


class Here:
    """Does in this process what loky does in others."""

    def __init__(self, workers, **_):
        self._processes = {}

    def submit(self, function, *arguments):
        done = Future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001  # as an executor does
            done.set_exception(error)
        return done

    def shutdown(self, **_):
        pass


@frozen(repr=False)
class Joined(fp.RowWise):
    """Adds a column from the rows of a source that it holds."""

    other: fp.Source

    def apply(self, chunk):
        found = self.other.take(0, chunk.column("x").to_numpy()).column("x")
        return chunk.append_column("y", found)

    def schema(self, schema):
        return schema.append(pa.field("y", pa.int64()))


@pytest.mark.parametrize("here", [True, False])
def test_what_jobs_share_is_sent_once_also_where_it_holds_what_is_shared(here, monkeypatch):
    if here:
        monkeypatch.setitem(sys.modules, "loky", SimpleNamespace(ProcessPoolExecutor=Here))
    rows = fp.pipe(numbers(600), Joined(fp.from_table({"x": np.arange(600) * 7}).source), map(dict), fp.batch(8))
    line = fp.prefetch(2, workers=2, kind="processes")
    assert_runners_agree(rows, line)
    assert next(part.count for part in fp.inspect.profile(line(rows)).parts if part.part.startswith("joined")) == 600


def test_what_somebody_else_removes_is_an_error(tmp_path):
    with pytest.raises(WorkerError, match="of a worker is missing"):
        processes._read_chunks(tmp_path, str(tmp_path / "gone"))
