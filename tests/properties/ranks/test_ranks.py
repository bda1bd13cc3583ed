"""Ranks that write, evaluate, predict and go on together: real processes, connected by MLX's ring."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest

import mlxfp as fp
from mlxfp.app.cli.commands import main
from mlxfp.app.cli.ranks import _free, _threads, start
from mlxfp.support.blas import THREAD_VARIABLES, free_cores
from mlxfp.support.errors import ArgumentError
from tests.compiling import nothing_compiled
from tests.properties.ranks.rank_programs import WRITTEN, breaking, measured, streamed, train

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from mlxfp.runtime import use_fast_blas
use_fast_blas(threads=1)
from mlxfp.distributed import connect
from tests.properties.ranks.rank_programs import CASES
CASES[sys.argv[1]](connect(backend="ring", limit=60), sys.argv[2])
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "MLX_DISABLE_COMPILE": "1"}  # compiling would take longer than all the rest


def launched(size, *command):
    """Run a command in so many processes of mlx.launch; return what they print."""
    where = ["--backend", "ring", "-n", str(size), "--starting-port", str(_free(size))]
    arguments = [*where, "--", sys.executable, *command]
    with start(arguments, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
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
    _, _, whole = train(fp.distributed.connect(), tmp_path / "whole", steps=30)
    for size in (2, 4):
        printed = launched(size, "-c", PROGRAM, "together", str(tmp_path))
        assert "Traceback" not in printed, printed
        found = [json.loads((tmp_path / f"{size}-{rank}.json").read_text()) for rank in range(size)]
        assert all(each == found[0] for each in found), found
        steps, sent, asked, said = found[0]["profiled"]
        assert steps == 4
        # 8 numbers of a model, and 4 of the loss and its weight, in float32: a rank sends 2 (n - 1) / n of them.
        assert sent == asked == 2 * (size - 1) * 4 * (8 + 4) // size
        assert said == f"{sent} bytes to other ranks."
        assert found[0]["measured"] == alone
        assert found[0]["refused"]
        assert found[0]["trained"][:2] == ([0, 5] if size == 2 else [5, 20])
    for name, dataset in WRITTEN.items():
        fp.write(dataset, tmp_path / f"{name}, alone", rows_per_file=30)
        assert files_in(tmp_path / name) == files_in(tmp_path / f"{name}, alone")
    begun, ended, params = train(fp.distributed.connect(), tmp_path / "trained", steps=30)
    assert (begun, ended) == (20, 30)
    assert all(np.allclose(ours, theirs, rtol=1e-5, atol=1e-6) for ours, theirs in zip(params, whole, strict=True))


@pytest.mark.usefixtures("uncompiled")
def test_training_on_a_stream_continues_on_other_ranks_after_a_kill(tmp_path):
    folder = tmp_path / "trained"
    for size, case in ((2, "killed at 7"), (4, "killed at 19")):
        outputs = started(size, folder, "-c", PROGRAM, case, str(folder))
        assert outputs[-1][1] == -signal.SIGKILL, outputs
    begun, ended, params = train(fp.distributed.connect(), folder, steps=30, batches=streamed)
    assert 7 < begun < 19
    _, _, whole = train(fp.distributed.connect(), tmp_path / "whole", steps=30, batches=streamed)
    assert ended == 30
    assert all(np.allclose(ours, theirs, rtol=1e-5, atol=1e-6) for ours, theirs in zip(params, whole, strict=True))


@pytest.mark.parametrize("how", ["killed", "raises"])
def test_a_rank_that_ends_while_it_writes_ends_the_others_and_any_runner_goes_on(how, tmp_path):
    folder = tmp_path / "parts"
    (first, code), (second, other) = started(2, folder, "-c", PROGRAM, how, str(folder))
    assert code == 1
    assert other == {"killed": -9, "raises": 1}[how]
    if how == "killed":
        assert "RankError: Another rank has ended" in first or "for another rank, and ends: a rank has ended" in first
    else:
        assert "RankError: Rank 1 of 2 failed while writing its files, so rank 0 stops" in first
        assert "ValueError: a broken row" in second
    assert 0 < len(list(folder.glob("part-*"))) < 6
    assert fp.write(breaking(how), folder, rows_per_file=20).rows == 120
    fp.write(breaking(how), tmp_path / "alone", rows_per_file=20)
    assert files_in(tmp_path / "alone") == files_in(folder)


def titanic(tmp_path, *rest):
    """Return the command of a run on few rows."""
    small = ["model.name=encoder", "data.limit=40", "text.vocab_size=300", "training.epochs=1", "validation.folds=2"]
    quiet = ["observers.progress=false", "observers.plots=false", f"output={tmp_path}"]
    return [sys.executable, "-m", "mlxfp", "run", "titanic", *small, *quiet, *rest]


def run_titanic(tmp_path, *rest, **environment):
    command = titanic(tmp_path, *rest)
    return subprocess.run(command, env={**ENVIRONMENT, **environment}, capture_output=True, text=True, check=False, timeout=250)


def test_the_exit_code_of_a_run_on_ranks_tells_the_truth(tmp_path):
    done = run_titanic(tmp_path, "--ranks", "2")
    assert done.returncode == 0, done.stderr
    assert "is ready to submit" in done.stdout
    assert "ended well" not in done.stdout
    failed = run_titanic(tmp_path, "--ranks", "2", "name=other", "training.size=7")
    assert failed.returncode == 1
    assert "training.size: batches of 7 rows cannot be divided among 2 ranks" in failed.stderr + failed.stdout
    assert "The run failed, because at least one rank failed. The output above has the error of the rank.\n" in failed.stderr


def losses(folder):
    """Return the losses of all steps of a run, by fold and step. A run that continues writes later lines for the same step."""
    logs = {log.parent.name: log.read_text(encoding="utf-8").splitlines() for log in folder.glob("titanic/fold-*/log.jsonl")}
    lines = [(fold, json.loads(line)) for fold, log in logs.items() for line in log]
    return {(fold, line["step"]): line["metrics"]["loss"] for fold, line in lines if line["event"] == "Stepped"}


def test_a_killed_run_on_two_ranks_continues_on_one_with_the_same_global_batches(tmp_path):
    options = ("training.epochs=6", "training.size=8", "model.dropout=0", "observers.every=1", "observers.checkpoint_every=2")
    whole = run_titanic(tmp_path / "whole", *options)
    assert whole.returncode == 0, whole.stderr
    output = tmp_path / "killed"
    with subprocess.Popen(titanic(output, "--ranks", "2", *options), env=ENVIRONMENT, stdout=subprocess.PIPE) as process:
        wait_until(lambda: list(output.glob("titanic/fold-*/checkpoints/**/*.safetensors")) or process.poll() is not None)
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    begun = len(losses(output))
    continued = run_titanic(output, *options)
    assert continued.returncode == 0, continued.stderr
    expected, actual = losses(tmp_path / "whole"), losses(output)
    assert 0 < begun < len(expected)
    assert actual.keys() == expected.keys()
    assert all(np.isclose(actual[step], loss, rtol=1e-4) for step, loss in expected.items())


def test_ctrl_c_ends_a_run_on_ranks(tmp_path):
    command = titanic(tmp_path, "--ranks", "2", "training.epochs=500")
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert any("fold 1 of 2: " in line for line in process.stdout)
        process.send_signal(signal.SIGINT)  # to this process alone, which passes it on
        _, said = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "mlxfp: interrupted" in said


# Does what ssh does with the options and the command that mlx.launch gives it, on this machine and without this environment.
SSH = """#!/bin/bash
while [[ $1 == -* ]]; do [[ $1 == -o ]] && shift; shift; done
echo "$1" >> {log}; shift
exec env -i PATH="$PATH" HOME="$HOME" bash -c "$*"
"""


def test_a_run_on_the_machines_of_a_hostfile(tmp_path):
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(SSH.format(log=tmp_path / "log"), encoding="utf-8")
    ssh.chmod(0o755)
    names = ("MLX_DISABLE_COMPILE", "PYTHONPATH", "MLXFP_DATA")
    environment = [f"{name}={ENVIRONMENT[name]}" for name in names if name in ENVIRONMENT]
    hosts = {"envs": environment, "hosts": [{"ssh": name, "ips": ["127.0.0.1"]} for name in ("first-machine", "127.0.0.1")]}
    hostfile = tmp_path / "hosts.json"
    hostfile.write_text(json.dumps(hosts), encoding="utf-8")
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = run_titanic(tmp_path, "--hostfile", str(hostfile), PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is ready to submit" in done.stdout
    assert (tmp_path / "log").read_text(encoding="utf-8").splitlines() == ["first-machine"]
    hosts["hosts"][0]["ssh"] = "lost-machine"
    ssh.write_text("#!/bin/sh\nexit 255\n", encoding="utf-8")
    hostfile.write_text(json.dumps(hosts), encoding="utf-8")
    failed = run_titanic(tmp_path, "--hostfile", str(hostfile), "name=other", PATH=path)
    assert failed.returncode == 1
    assert "The run failed, because at least one rank failed." in failed.stderr
    assert "Exit code 255 comes from ssh if a machine is not reachable" in failed.stderr


STARTS = """
import sys, time
from mlxfp.app.cli.ranks import start
with start(["-n", "2", "--backend", "ring", "--", sys.executable, "-c", sys.argv[1]]) as process:
    process.wait()
"""


def test_ranks_end_where_the_process_that_started_them_is_killed(tmp_path):
    sleeps = f"import os, time; open({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w').close(); time.sleep(200)"
    with subprocess.Popen([sys.executable, "-c", STARTS, sleeps], cwd=ROOT, env=ENVIRONMENT) as process:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        process.kill()
    ranks = [int(path.name) for path in tmp_path.iterdir()]
    try:
        wait_until(lambda: not any(map(is_running, ranks)))
    finally:
        for each in filter(is_running, ranks):
            os.kill(each, signal.SIGKILL)


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition):
    deadline = monotonic() + 60
    while not condition():
        assert monotonic() < deadline
        sleep(0.05)


def test_ranks_on_one_machine_share_its_cores(monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    _, cores = free_cores()
    assert _threads(1) == ["--env", f"OPENBLAS_NUM_THREADS={cores}"]
    assert _threads(2 * cores) == ["--env", "OPENBLAS_NUM_THREADS=1"]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert _threads(2) == []


def test_arguments_of_ranks_that_cannot_be_are_a_sentence(capsys):
    assert main(["run", "titanic", "--ranks", "0"]) == 1
    assert main(["run", "titanic", "--ranks", "2", "--hostfile", "hosts.json"]) == 1
    assert main(["run", "titanic", "--hostfile", "nowhere.json"]) == 1
    said = capsys.readouterr().err
    assert "ranks must be at least 1, got ranks=0" in said
    assert "Leave out --ranks: the hostfile lists all ranks." in said
    assert "There is no file 'nowhere.json'" in said
    with pytest.raises(ArgumentError, match="limit must be above 0, got limit=0"):
        fp.runners.ranks(limit=0)
