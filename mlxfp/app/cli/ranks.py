"""`mlxfp run --ranks`: the same command in several processes, started by `mlx.launch`, with an exit code that tells how they ended."""

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

_TOKEN = "MLXFP_RANKS_TOKEN"  # noqa: S105  # what rank 0 prints when all have ended well; mlx.launch itself always returns 0
_LIMIT = (
    6 * 3600.0
)  # seconds that ranks wait for rank 0, which evaluates and predicts alone after a training; mlx.launch ends all if one dies
_PORTS = range(20_000, 60_000)
_PORTS_OF_A_FILE = 256  # a rank needs one for each of its addresses; of the other machines nobody knows which are free
# The program mlx.launch, of this Python. That of MLX 0.32 keeps a core busy, as it waits until it can write to the inputs of the ranks,
# which is always so. Nothing is written to them here. Its own input ends where the process is gone that has started it: then all end.
_START = """
import os, signal
from mlx._distributed_utils import launch

ready = launch.select

def select(read, write, *rest):
    found = ready(read, [], *rest)
    if 0 in found[0]:
        os.killpg(0, signal.SIGTERM)
    return found

launch.select = select
try:
    launch.main()
except KeyboardInterrupt:
    pass  # the ranks have it, too, and end
"""


def add_ranks(command: ArgumentParser) -> None:
    """Add `--ranks` and `--hostfile`."""
    command.add_argument("--ranks", metavar="N", type=int, help="train with N processes on this machine, connected by MLX's ring")
    command.add_argument(
        "--hostfile", metavar="FILE", help="train with the machines in a hostfile of mlx.launch, which share their folders"
    )


def wants_ranks(options: Namespace) -> bool:
    """Whether other processes are to be started, and this one is not one of them."""
    return (options.ranks is not None or options.hostfile is not None) and _TOKEN not in os.environ


def launch(options: Namespace, command: Sequence[str]) -> int:
    """Start the ranks with this command of mlxfp, print what they print, and return 0 if all of them ended well, else 1."""
    if options.hostfile is not None and options.ranks is not None:
        raise ArgumentError("Give one of --ranks and --hostfile: the file says how many there are.")
    if options.hostfile is not None and not Path(options.hostfile).is_file():
        raise MissingFileError(f"There is no file {options.hostfile!r}. mlx.distributed_config writes one.")
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
            _print(process.stdout, token)  # what they say to it
            raise
    if not ended_well:
        ssh = " Exit code 255 is that of ssh, which could not reach a machine: try ssh NAME true." if options.hostfile else ""
        warn(f"Not all ranks have ended well, so the run has not. What they print says why.{ssh}")
    return 0 if ended_well else 1


def start(arguments: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
    """Start mlx.launch with these arguments, in a group of processes of its own."""
    program = [sys.executable, "-c", _START, *arguments]
    return subprocess.Popen(program, stdin=subprocess.PIPE, text=True, process_group=0, **options)  # noqa: S603  # it is ours


def _print(lines: Iterable[str], token: str) -> bool:
    """Print what ranks print; return whether the token was among it."""
    found = False
    for line in lines:
        if line.rstrip("\n") == token:
            found = True
        else:
            say(line.rstrip("\n"))
    return found


def connected() -> "Ranks | None":
    """Return the ranks that this process is one of, as mlx.launch has started it, or None."""
    if "MLX_RANK" not in os.environ:
        return None
    from mlxfp.distributed import connect

    return connect(limit=_LIMIT)


def end_well(ranks: "Ranks | None") -> None:
    """Tell who started the ranks that all have ended well."""
    token = os.environ.get(_TOKEN)
    if token is not None and (ranks is None or (ranks.gather([]) and ranks.world.rank == 0)):
        say(token)


def _threads(count: int) -> list[str]:
    """Divide the cores of this machine between the ranks, unless the environment says how many threads a program has.

    OpenBLAS would take all of them in each rank, and its threads wait by spinning.
    """
    if any(os.environ.get(name) for name in THREAD_VARIABLES):
        return []
    return ["--env", f"{THREAD_VARIABLES[0]}={max(1, free_cores()[1] // count)}"]


def _free(count: int) -> int:
    """Find so many ports in a row that no program listens at."""
    for first in range(_PORTS.start + os.getpid() % 10_000, _PORTS.stop, count):
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(closing(socket.socket())).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise ArgumentError(f"There are no {count} free ports in a row on this machine. End other programs, or use fewer ranks.")
