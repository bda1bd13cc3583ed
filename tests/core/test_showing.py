"""What takes long is shown where people look, and nowhere else; a clock is given, so nothing waits."""

import io
import multiprocessing
import sys
import tarfile
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tqdm

from mlxfp.core.datasets import to_table
from mlxfp.core.describing import length, schema
from mlxfp.core.pipelines import pipe
from mlxfp.core.running import showing
from mlxfp.core.running.bars import Bar
from mlxfp.core.running.showing import Console, Showing, lines_in_logs, shows_bars
from mlxfp.data.lengths.batching import batch
from mlxfp.data.manifests import read_manifest
from mlxfp.data.rows.map_filter import filter
from mlxfp.data.rows.selecting import split
from mlxfp.data.rows.shuffling import shuffle, shuffle_quality
from mlxfp.data.running.caching import cache, load
from mlxfp.data.running.runners import threads
from mlxfp.data.running.writing import write
from mlxfp.data.sources.csv_files import read_csv
from mlxfp.data.sources.in_memory import from_examples, from_iterable
from mlxfp.data.sources.parquet_files import read_parquet
from mlxfp.data.sources.tar_files import read_tar
from mlxfp.support.terminal import one_line
from mlxfp.text.tokenizers.training import train_tokenizer
from tests.core.shown_by_workers import shown_by_a_worker
from tests.screens import Terminal, screens, terminal


@pytest.fixture
def clock(monkeypatch):
    """A function that lets seconds go by."""
    now = [1000.0]
    monkeypatch.setattr(showing, "monotonic", lambda: now[0])
    for name in (showing.SETTING, *showing._RANKS):
        monkeypatch.delenv(name, raising=False)

    def pass_by(seconds):
        now[0] += seconds

    return pass_by


@pytest.fixture
def stderr(monkeypatch, clock):
    """A function that puts a file in place of standard error: a terminal of eighty columns, unless one is given."""
    monkeypatch.setenv("COLUMNS", "80")

    def replace(*files):
        (file,) = files or (Terminal(),)
        monkeypatch.setattr(sys, "stderr", file)  # not before the test: pytest sets its own between the fixtures and the test
        return file

    return replace


def work(clock, *, chunks=10, seconds=1.0, rows=100, **options):
    """Work for some seconds a chunk."""
    with Showing("count", **options) as shown:
        for _ in range(chunks):
            clock(seconds)
            shown.add(rows)


def last_bars(file):
    return [lines[0] for lines in screens(file.getvalue()) if lines[0]]


def test_nothing_is_shown_of_less_than_two_seconds(stderr, clock):
    screen = stderr()
    work(clock, chunks=19, seconds=0.1)
    with Showing("count") as shown:
        shown.say("another text")
    assert screen.getvalue() == ""


def test_a_terminal_gets_a_bar_after_two_seconds_and_is_clean_at_the_end(clock, monkeypatch):
    with terminal(80) as (file, written):
        monkeypatch.setattr(sys, "stderr", file)
        work(clock, total=lambda: 1000)
        seen = list(screens(written()))
    assert seen[1][0].startswith("count:  20%|██")
    assert seen[1][0].endswith("| 200/1000 [00:02<00:08, 100.00 rows/s]")
    assert any(lines[0].startswith("count: 100%|") for lines in seen)
    assert seen[-1] == [""]


@pytest.mark.parametrize("columns", [10, 40, 200])
@pytest.mark.parametrize("total", [1000, None])
def test_a_bar_is_no_wider_than_the_terminal_and_no_wider_than_one_reads(clock, monkeypatch, columns, total):
    with terminal(columns) as (file, written):
        monkeypatch.setattr(sys, "stderr", file)
        work(clock, total=lambda: total)
        seen = list(screens(written()))
    assert 0 < max(len(lines[0]) for lines in seen) <= min(columns - 1, 100)
    assert all(len(lines) == 1 for lines in seen)


def test_a_terminal_without_a_size_has_that_of_the_environment(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    with terminal(0) as (file, written):
        monkeypatch.setattr(sys, "stderr", file)
        work(clock, total=lambda: 1000)
        assert 0 < max(len(lines[0]) for lines in screens(written())) < 30


def test_a_bar_is_drawn_ten_times_a_second_at_most(stderr, clock):
    screen = stderr()
    work(clock, chunks=10_000, seconds=0.001)
    assert 80 <= len(last_bars(screen)) <= 82


def test_where_people_do_not_look_nothing_is_shown_unless_they_ask_for_it(stderr, clock, monkeypatch):
    file = stderr(io.StringIO())
    work(clock)
    assert file.getvalue() == ""
    for asked in ("1", "yes"):
        monkeypatch.setenv(showing.SETTING, asked)
        work(clock, chunks=6, seconds=10, total=lambda: 600)
    once = ["count:  17% 100/600 [00:10<00:50, 10.00 rows/s]", "count:  67% 400/600 [00:40<00:20, 10.00 rows/s]"]
    assert file.getvalue().splitlines() == 2 * [*once, "count: 100% 600/600 [01:00<00:00, 10.00 rows/s]"]


def test_commands_write_lines_into_logs(stderr, clock):
    file = stderr(io.StringIO())
    with lines_in_logs():
        work(clock, chunks=2, seconds=10_000, rows=1_000_000)
    work(clock)
    assert file.getvalue().splitlines() == ["count: 1.00M rows [2:46:40, 100 rows/s]", "count: 2.00M rows [5:33:20, 100 rows/s]"]


def test_one_setting_keeps_everything_quiet(stderr, clock, monkeypatch):
    screen = stderr()
    monkeypatch.setenv(showing.SETTING, "0")
    with lines_in_logs():
        work(clock)
    assert (screen.getvalue(), shows_bars()) == ("", False)
    monkeypatch.setenv(showing.SETTING, "")
    assert shows_bars()


def test_a_notebook_is_a_place_where_people_look(stderr, clock):
    kernel = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
    file = stderr(kernel())
    work(clock, total=lambda: 1000)
    assert last_bars(file)[-1].startswith("count: 100%|")


class Gone(Terminal):
    def write(self, text):
        raise OSError("the terminal is closed")

    def flush(self):
        raise OSError("the terminal is closed")


class Detached(Terminal):
    def flush(self):
        raise ValueError("underlying buffer has been detached")


def closed():
    file = Terminal()
    file.close()
    return file


class Ascii(io.TextIOWrapper):
    def isatty(self):
        return True


@pytest.mark.parametrize("file", [None, Gone(), Detached(), closed(), Ascii(io.BytesIO(), encoding="ascii")])
@pytest.mark.parametrize("setting", ["", "1"])
def test_a_console_that_cannot_be_written_to_ends_no_work(stderr, clock, monkeypatch, file, setting):
    stderr(file)
    monkeypatch.setenv(showing.SETTING, setting)
    work(clock)
    with Showing("größe", steady=True) as shown:
        clock(5)
        shown.add()


def test_a_console_that_goes_away_ends_no_work(stderr, clock):
    screen = stderr()
    with Showing("count") as shown:
        for _ in range(5):
            clock(1)
            shown.add()
        screen.close()
        clock(1)
        shown.add()


def test_threads_workers_and_later_ranks_show_nothing(stderr, clock, monkeypatch, tmp_path):
    screen = stderr()
    thread = threading.Thread(target=work, args=[clock])
    thread.start()
    thread.join()
    assert screen.getvalue() == ""
    monkeypatch.setenv("MLX_RANK", "1")
    work(clock)
    assert (screen.getvalue(), shows_bars()) == ("", False)
    monkeypatch.setenv("MLX_RANK", "0")
    work(clock)
    assert "count" in screen.getvalue()
    process = multiprocessing.get_context("spawn").Process(target=shown_by_a_worker, args=[str(tmp_path / "shown")])
    process.start()
    process.join()
    assert (tmp_path / "shown").read_text() == "nothing"


def test_consoles_of_one_file_are_one():
    file = Terminal()
    assert len({Console(file), Console(file), Console(Terminal())}) == 2
    with pytest.raises(TypeError):  # outside a notebook tqdm has no widget to make
        Bar.status_printer(file, 100, "count", None)


def test_text_from_elsewhere_moves_no_cursor(stderr, clock):
    screen = stderr()
    with Showing("a\x1b[2J\r\n\x07\u202eb") as shown:
        for _ in range(5):
            clock(1)
            shown.add()
        shown.say("part\x9b\n2")
    assert one_line("a\tb\u202ec\x00\nd") == r"a\tb\u202ec\x00 d"
    bars = [line for lines in screens(screen.getvalue()) for line in lines if line]  # fails for an escape character
    assert bars[0].startswith(r"a\x1b[2J \x07\u202eb: ")
    assert bars[-1].startswith(r"part\x9b 2")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupt_leaves_the_terminal_clean(stderr, clock, error):
    screen = stderr()

    def stopped():
        with Showing("count") as shown:
            clock(3)
            shown.add()
            raise error

    with pytest.raises(error):
        stopped()
    *_, bar, erased, end = screens(screen.getvalue())
    assert (bar[0][:6], erased, end) == ("count:", [""], [""])


def test_a_log_has_no_last_line_of_work_that_failed(stderr, clock):
    file = stderr(io.StringIO())

    def failing():
        for _ in range(4):
            clock(3)
            yield "a group"
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), lines_in_logs(), Showing("count", unit="groups") as shown:
        list(shown.over(failing()))
    assert len(file.getvalue().splitlines()) == 1


def test_work_within_work_has_a_bar_of_its_own(stderr, clock):
    screen = stderr()
    with Showing("outer") as outer:
        clock(3)
        outer.add()
        work(clock, total=lambda: 1000)
        clock(3)
        outer.add()
    seen = list(screens(screen.getvalue()))
    assert any([line[:6] for line in lines] == ["outer:", "count:"] for lines in seen)
    assert set(seen[-1]) == {""}


def test_the_bar_of_a_program_and_what_it_writes_stay_whole(stderr, clock):
    screen = stderr()
    with tqdm.tqdm(total=3, desc="theirs", file=screen, leave=False) as theirs, Showing("ours") as shown:
        clock(3)
        shown.add()
        theirs.update()
        theirs.write("a line", file=screen)
        clock(3)
        shown.add()
        assert {line[:6] for line in [*screens(screen.getvalue())][-1]} == {"a line", "theirs", "ours: "}
    assert set([*screens(screen.getvalue())][-1]) == {"a line", ""}


def test_steady_work_writes_lines_on_terminals_and_counts_what_was_done_before(stderr, clock):
    screen = stderr()
    with Showing("folds", unit="fold", total=lambda: 5, done=1, steady=True) as shown:
        for _ in range(4):
            clock(40)
            shown.add()
    assert screen.getvalue().splitlines()[:2] == [
        "folds:  40% 2/5 [00:40<02:00, 40.00s/fold]",
        "folds:  60% 3/5 [01:20<01:20, 40.00s/fold]",
    ]
    assert len(screen.getvalue().splitlines()) == 4


def test_a_total_that_cannot_be_found_is_left_out(stderr, clock):
    screen = stderr()

    def total():
        raise OSError("the file is gone")

    work(clock, total=total)
    assert last_bars(screen)[0] == "count: 200 rows [00:02, 100.00 rows/s]"


ROWS = from_examples([{"x": i, "text": f"row {i}"} for i in range(300)])
STREAM = from_iterable(lambda: iter([{"x": i, "text": f"row {i}"} for i in range(300)]))


def parquet(folder):
    """A pipeline of five files."""
    folder.mkdir()
    for number in range(5):
        pq.write_table(pa.table({"x": [number]}), folder / f"{number}.parquet")
    return read_parquet(folder)


def archive(path):
    """A pipeline of an archive of a hundred files."""
    with tarfile.open(path, "w") as made:
        for number in range(100):
            made.addfile(tarfile.TarInfo(f"{number}.txt"))
    return read_tar(path)


def lines(path):
    """A pipeline of a file whose columns are found by reading it whole."""
    path.write_text("x,text\n1,a\n")
    return read_csv(path, schema="scan")


LONG = {
    "find the types of columns: 1 blocks": lambda folder: schema(lines(folder)),
    "count rows: 100%|": lambda folder: length(parquet(folder)),
    "count rows: 100%|####": lambda folder: length(archive(folder.with_suffix(".tar"))),
    "load": lambda folder: len(pipe(STREAM, load()).source.table),
    "load: 100%": lambda folder: pipe(ROWS, load()).source.table,
    "load: 100%|#####": lambda folder: pipe(ROWS, batch(2), load()).source.items,
    "cache: 300 rows": lambda folder: pipe(STREAM, cache(folder)).source.table,
    "write: 100%": lambda folder: write(ROWS, folder, rows_per_file=100),
    "write: 300 rows": lambda folder: write(STREAM, folder, rows_per_file=100, on=threads(2)),
    "write": lambda folder: write(pipe(ROWS, shuffle(seed=0, buffer=10)), folder, rows_per_file=100),
    "check written files: 100%": lambda folder: write(ROWS, folder, rows_per_file=100).damaged(),
    "train_tokenizer: 100%": lambda folder: train_tokenizer(ROWS, vocab_size=270),
    "train_tokenizer: text is read, making the vocabulary: 100%": lambda folder: train_tokenizer(ROWS, kind="wordpiece", vocab_size=90),
    "shuffle: 300 rows": lambda folder: list(pipe(STREAM, shuffle(seed=0))),
    "shuffle_quality: 100%": lambda folder: shuffle_quality(ROWS),
    "split: 100%": lambda folder: split([0.5, 0.5], seed=0, stratify="x")(ROWS)[0][0],
    "to_table: ": lambda folder: to_table(pipe(ROWS, filter(lambda row: True))),
}


@pytest.mark.parametrize("text", LONG)
def test_everything_that_reads_for_long_says_how_far_it_is(stderr, clock, monkeypatch, tmp_path, text):
    screen = stderr()
    now = iter(range(1_000_000))
    monkeypatch.setattr(showing, "monotonic", lambda: 3.0 * next(now))  # every look at the clock is seconds later
    LONG[text](tmp_path / "out")
    assert any(bar.startswith(text) for bar in last_bars(screen)), screen.getvalue()
    assert [*screens(screen.getvalue())][-1] == [""]


def test_what_goes_on_knows_no_total(stderr, monkeypatch, tmp_path):
    screen = stderr()
    manifest = write(pipe(ROWS, shuffle(seed=0)), tmp_path, rows_per_file=100)
    (tmp_path / manifest.files[1].name).write_bytes(b"damaged")
    now = iter(range(1_000_000))
    monkeypatch.setattr(showing, "monotonic", lambda: 3.0 * next(now))
    assert write(pipe(ROWS, shuffle(seed=0)), tmp_path, rows_per_file=100) == manifest == read_manifest(tmp_path)
    assert any(bar.startswith("write: 100 rows") for bar in last_bars(screen)), last_bars(screen)


def test_a_call_that_says_nothing_has_a_clock_that_goes_on(stderr, clock, monkeypatch):
    monkeypatch.setattr(showing, "_TICK", 0.001)
    screen = stderr()
    deadline = time.monotonic() + 30
    with Showing("count", total=lambda: 100) as shown, shown.ticking():
        for seconds, said in ((3, "[00:03"), (4, "[00:07"), (8, "[00:15")):
            clock(seconds)
            while said not in screen.getvalue() and time.monotonic() < deadline:
                time.sleep(0.001)
    assert [bar.rpartition("[")[2][:5] for bar in dict.fromkeys(last_bars(screen))] == ["00:03", "00:07", "00:15"]
    before = screen.getvalue()
    clock(100)
    time.sleep(0.01)
    assert screen.getvalue() == before  # the clock has stopped


def test_ticks_lose_nothing_of_what_is_counted(stderr, clock, monkeypatch):
    monkeypatch.setattr(showing, "_TICK", 0.0)
    screen = stderr()
    with Showing("count", total=lambda: 20_000) as shown, shown.ticking():
        for _ in range(20_000):
            clock(0.01)
            shown.add()
        clock(1)
        shown.add(0)
    assert last_bars(screen)[-1].startswith("count: 100%")
