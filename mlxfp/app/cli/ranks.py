"""Distributed runs of `mlxfp run --ranks`: several processes started by `mlx.launch`, with an exit code for all ranks."""

import os
import signal
import socket
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from mlxfp.app.cli.parsing import say, warn
from mlxfp.support.blas import THREAD_VARIABLES, free_cores
from mlxfp.support.checks import check_positive
from mlxfp.support.errors import ArgumentError, MissingFileError

if TYPE_CHECKING:
    from mlxfp.distributed import Ranks

_TOKEN = "MLXFP_RANKS_TOKEN"  # noqa: S105  # success message printed by rank 0; mlx.launch always returns 0
# Timeout in seconds for ranks that wait while rank 0 evaluates and predicts alone after training.
# If a rank dies, mlx.launch ends all ranks at once, without waiting for the timeout.
_LIMIT = 6 * 3600.0
_PORTS = range(20_000, 60_000)
_PORTS_OF_A_FILE = 256  # consecutive free ports needed with a hostfile: one for each rank, up to 256 ranks
# Source code of a Python program that replaces the `select` function of mlx.launch and then starts mlx.launch.
# In MLX 0.32, mlx.launch calls `select` in a loop. The call never waits, because a rank can always receive input.
# The loop without waiting keeps a core busy. The new `select` function ignores input, and waits for output from the ranks.
# If the parent process ends, the standard input of mlx.launch closes, and all ranks end.
_START = """
import os, signal
from mlx._distributed_utils import launch

ready = launch.select

def select(read, write, *rest):
    pipes = ready(read, [], *rest)
    if 0 in pipes[0]:
        os.killpg(0, signal.SIGTERM)
    return pipes

launch.select = select
try:
    launch.main()
except KeyboardInterrupt:
    pass  # the ranks receive the same signal and end
"""


def add_ranks(command: ArgumentParser) -> None:
    """Add `--ranks` and `--hostfile`."""
    command.add_argument("--ranks", metavar="N", type=int, help="train with N processes on this machine, connected by MLX's ring")
    command.add_argument(
        "--hostfile", metavar="FILE", help="train on the machines in an mlx.launch hostfile; all machines need access to the same folders"
    )


def wants_ranks(options: Namespace) -> bool:
    """Return True if this process must start other ranks and is not a rank itself."""
    return (options.ranks is not None or options.hostfile is not None) and _TOKEN not in os.environ


def launch(options: Namespace, command: Sequence[str]) -> int:
    """Start the ranks with an mlxfp command and print their output. Return 0 if all ranks succeeded, else 1."""
    if options.hostfile is not None and options.ranks is not None:
        raise ArgumentError(
            f"--ranks is {options.ranks}, and --hostfile is {options.hostfile!r}. Leave out --ranks: the hostfile lists all ranks."
        )
    if options.hostfile is not None and not Path(options.hostfile).is_file():
        raise MissingFileError(f"There is no file {options.hostfile!r}. Create a hostfile with mlx.distributed_config.")
    if options.hostfile is None:
        check_positive(ranks=options.ranks)
    token = f"ranks {token_hex(16)} have ended well"
    where = ["--hostfile", options.hostfile] if options.hostfile else ["-n", str(options.ranks), *_threads(options.ranks)]
    ports = ["--starting-port", str(_free(options.ranks or _PORTS_OF_A_FILE))]
    arguments = ["--backend", "ring", *where, *ports, "--env", f"{_TOKEN}={token}", "--", sys.executable, "-m", "mlxfp", *command]
    ended_well = False
    with start(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            ended_well = _print(process.stdout, token)
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGINT)
            _print(process.stdout, token)  # print the remaining output of the ranks after Ctrl-C
            raise
    if not ended_well:
        ssh = " Exit code 255 comes from ssh if a machine is not reachable: try ssh NAME true." if options.hostfile else ""
        warn(f"The run failed, because at least one rank failed. The output above has the error of the rank.{ssh}")
    return 0 if ended_well else 1


def start(arguments: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
    """Start mlx.launch in a new process group, with the command line `arguments`."""
    program = [sys.executable, "-c", _START, *arguments]
    return subprocess.Popen(program, stdin=subprocess.PIPE, text=True, process_group=0, **options)  # noqa: S603


def _print(lines: Iterable[str], token: str) -> bool:
    """Print the output of the ranks. Return True if the output contains the success token."""
    success = False
    for line in lines:
        if line.rstrip("\n") == token:
            success = True
        else:
            say(line.rstrip("\n"))
    return success


def connected() -> "Ranks | None":
    """Return the group of ranks if mlx.launch started this process, else None."""
    if "MLX_RANK" not in os.environ:
        return None
    from mlxfp.distributed import connect

    return connect(limit=_LIMIT)


def end_well(ranks: "Ranks | None") -> None:
    """Print the success token after all ranks have succeeded. The process that started the ranks reads this token."""
    token = os.environ.get(_TOKEN)
    if token is not None and (ranks is None or (ranks.gather([]) and ranks.world.rank == 0)):
        say(token)


def _threads(count: int) -> list[str]:
    """Return the mlx.launch arguments that give each rank an equal share of the cores.

    By default, OpenBLAS starts a thread per core in every rank, and idle threads keep the cores busy. If an environment variable sets a
    thread count, no arguments are returned.
    """
    if any(os.environ.get(name) for name in THREAD_VARIABLES):
        return []
    return ["--env", f"{THREAD_VARIABLES[0]}={max(1, free_cores()[1] // count)}"]


def _free(count: int) -> int:
    """Return the first of `count` consecutive free ports."""
    for first in range(_PORTS.start + os.getpid() % 10_000, _PORTS.stop, count):
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(closing(socket.socket())).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise ArgumentError(f"This machine has no {count} consecutive free ports. Close other programs, or reduce --ranks.")
