"""Ranks that write, evaluate, predict and go on together: real processes, connected by MLX's ring."""

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from mlxfp.cli.commands import main
from mlxfp.cli.ranks import _free
from mlxfp.core.errors import ArgumentError
from mlxfp.data.running.writing import write
from mlxfp.distributed import connect
from mlxfp.runners import ranks as on_ranks
from tests.compiling import nothing_compiled
from tests.rank_programs import WRITTEN, breaking, measured, train

ROOT = Path(__file__).parent.parent
PROGRAM = """
import sys
from mlxfp.runtime import use_fast_blas
use_fast_blas(threads=1)
from mlxfp.distributed import connect
from tests.rank_programs import CASES
CASES[sys.argv[1]](connect(backend="ring", limit=100), sys.argv[2])
"""
LAUNCH = "from mlx._distributed_utils.launch import main; main()"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "MLX_DISABLE_COMPILE": "1"}  # compiling would take longer than all the rest


def launched(size, *command):
    """Run a command in so many processes of mlx.launch; return what they print."""
    where = ["--backend", "ring", "-n", str(size), "--starting-port", str(_free(size))]
    # A pipe as its standard input: at the end of a file, mlx.launch would keep a core busy.
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCH, *where, "--", sys.executable, *command],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        return process.stdout.read()


def started(size, folder, *command):
    """Run a command in processes that nothing ends but themselves; return the exit code and the output of each."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(size)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        hosts = [[f"127.0.0.1:{each.getsockname()[1]}"] for each in sockets]
    hostfile = folder.parent / f"{folder.name}.json"
    hostfile.write_text(json.dumps(hosts), encoding="utf-8")
    processes = [
        subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**ENVIRONMENT, "MLX_HOSTFILE": str(hostfile), "MLX_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        return [(process.communicate(timeout=250)[0], process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def uncompiled():
    with nothing_compiled():
        yield


@pytest.mark.usefixtures("uncompiled")
def test_two_ranks_do_what_one_process_does_and_four_and_one_go_on(tmp_path):
    alone = [list(measured(None, rows)) for rows in (4, 200)]
    _, _, whole = train(connect(), tmp_path / "whole", steps=30)
    for size in (2, 4):
        printed = launched(size, "-c", PROGRAM, "together", str(tmp_path))
        assert "Traceback" not in printed, printed
        found = [json.loads((tmp_path / f"{size}-{rank}.json").read_text()) for rank in range(size)]
        assert all(each == found[0] for each in found), found
        assert found[0]["measured"] == alone
        assert found[0]["refused"]
        assert found[0]["trained"][:2] == ([0, 5] if size == 2 else [5, 20])
    for name, dataset in WRITTEN.items():
        write(dataset, tmp_path / f"{name}, alone", rows_per_file=30)
        assert files_in(tmp_path / name) == files_in(tmp_path / f"{name}, alone")
    begun, ended, params = train(connect(), tmp_path / "trained", steps=30)
    assert (begun, ended) == (20, 30)
    assert all(np.allclose(ours, theirs, rtol=1e-5, atol=1e-6) for ours, theirs in zip(params, whole, strict=True))


@pytest.mark.parametrize("how", ["killed", "raises"])
def test_a_rank_that_ends_while_it_writes_ends_the_others_and_any_runner_goes_on(how, tmp_path):
    folder = tmp_path / "parts"
    (first, code), (second, other) = started(2, folder, "-c", PROGRAM, how, str(folder))
    assert code == 1
    assert other == {"killed": -9, "raises": 1}[how]
    if how == "killed":
        assert "RankError: Another rank is gone" in first or "for another one, and ends: a rank has ended" in first
    else:
        assert "RankError: Rank 1 of 2 failed while it wrote its files, so this one, rank 0, stops" in first
        assert "ValueError: a broken row" in second
    assert 0 < len(list(folder.glob("part-*"))) < 6
    assert write(breaking(how), folder, rows_per_file=20).rows == 120
    write(breaking(how), tmp_path / "alone", rows_per_file=20)
    assert files_in(tmp_path / "alone") == files_in(folder)


def test_the_exit_code_of_a_run_on_ranks_tells_the_truth(tmp_path):
    small = ["model.name=encoder", "data.limit=40", "text.vocab_size=300", "training.epochs=1", "validation.folds=2"]
    quiet = ["observers.progress=false", "observers.plots=false", f"output={tmp_path}"]
    command = [sys.executable, "-m", "mlxfp", "run", "titanic", *small, *quiet, "--ranks", "2"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "is ready to submit" in done.stdout
    assert "ended well" not in done.stdout
    failed = subprocess.run([*command, "name=other", "training.size=7"], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "training.size: batches of 7 rows cannot be divided among 2 ranks" in failed.stderr + failed.stdout


def test_arguments_of_ranks_that_cannot_be_are_a_sentence(capsys):
    assert main(["run", "titanic", "--ranks", "0"]) == 1
    assert main(["run", "titanic", "--ranks", "2", "--hostfile", "hosts.json"]) == 1
    assert main(["run", "titanic", "--hostfile", "nowhere.json"]) == 1
    said = capsys.readouterr().err
    assert "ranks must be at least 1, got ranks=0" in said
    assert "Give one of --ranks and --hostfile" in said
    assert "There is no file 'nowhere.json'" in said
    with pytest.raises(ArgumentError, match="limit must be above 0, got limit=0"):
        on_ranks(limit=0)
