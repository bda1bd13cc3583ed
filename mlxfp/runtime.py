"""Backend and device of MLX, and a fast BLAS for MLX on Linux without a GPU.

The MLX wheel for Linux CPU multiplies matrices with the reference BLAS, on one core and without vector instructions. OpenBLAS is
twenty to thirty times faster, but must be loaded before MLX. `use_fast_blas` loads OpenBLAS. `python -m mlxfp.runtime` calls
`use_fast_blas` and prints backend, BLAS and speed.
"""

import os
import sys
import warnings
from functools import cache
from importlib.metadata import version
from timeit import repeat
from typing import Literal

from attrs import frozen

from mlxfp.support.atomic_files import first_on_machine
from mlxfp.support.blas import blas_library, is_reference, load_openblas, threads_by_load
from mlxfp.support.checks import check_choice, check_positive
from mlxfp.support.errors import MissingExtraError
from mlxfp.support.progress import SETTING

__all__ = ["Runtime", "report", "show_progress", "use_fast_blas", "warn_if_slow"]


def __dir__() -> list[str]:
    return __all__


@frozen
class Runtime:
    """Version, backend and device of MLX, and the BLAS library for the CPU. `slow` is True for the slow reference BLAS.

    `memory` is the memory limit of MLX in bytes. At the limit, MLX waits or frees cached buffers.

    >>> print(Runtime(mlx="0.32.4", backend="cpu", device="cpu", blas="libopenblas.so.0", slow=False, memory=16 * 2**30))
    mlx      0.32.4
    backend  cpu
    device   cpu
    blas     libopenblas.so.0
    memory   16.0 GiB at most
    """

    mlx: str
    backend: Literal["metal", "cuda", "cpu"]
    device: str
    blas: str
    slow: bool
    memory: int

    def __str__(self) -> str:
        remark = "  (the reference BLAS: slow)" if self.slow else ""
        lines = {"mlx": self.mlx, "backend": self.backend, "device": self.device, "blas": f"{self.blas}{remark}"}
        lines["memory"] = f"{self.memory / 2**30:.1f} GiB at most"
        return "\n".join(f"{name:9}{text}" for name, text in lines.items())


def use_fast_blas(*, threads: int | None = None) -> None:
    """Load OpenBLAS for matrix products of MLX on Linux CPU, with `threads` threads.

    Call this function before any import of `mlx.core`. `from mlxfp import models` imports MLX, too. A second call has no effect.
    On macOS and with CUDA, the function does nothing.
    If the call is too late or OpenBLAS is missing, a `RuntimeWarning` names the remedy, and MLX stays slow.

    The function loads the OpenBLAS of the system (`libopenblas0` on Debian), otherwise the wheel scipy-openblas32 from the extra `cpu`.
    The wheel uses other function names than MLX. A small C library translates the names. The library is compiled once into the cache
    folder of the user (`$XDG_CACHE_HOME/mlxfp`, otherwise `~/.cache/mlxfp`).

    Without `threads`, the environment variable `OPENBLAS_NUM_THREADS` or `OMP_NUM_THREADS` sets the number of threads. Without these
    variables, OpenBLAS uses the cores that other programs leave idle. Waiting threads of OpenBLAS keep their core busy, so more threads
    than idle cores are slower by an order of magnitude. If the number is below the number of cores, a `RuntimeWarning` shows the
    number, because the last digits of results may depend on it. The warning about a number appears once on each machine. `mlxfp doctor`
    always shows the number.

    >>> use_fast_blas(threads=1)

    See also: `report`, `warn_if_slow`.
    """
    if threads is not None:
        check_positive(threads=threads)
    if sys.platform != "linux":
        return
    if "mlx.core" in sys.modules:
        missing: str | None = (
            "mlx.core was imported earlier. Call use_fast_blas() directly after `import mlxfp as fp`, before `import mlx.core` and before "
            "imports of modules that load MLX, such as `from mlxfp import models`."
        )
    else:
        thread_count, warning = (threads, None) if threads else threads_by_load()
        missing = load_openblas(thread_count)
        if warning and not missing and first_on_machine(f"use_fast_blas: {warning}"):
            warnings.warn(warning, RuntimeWarning, stacklevel=2)
    if missing and report().slow:
        warnings.warn(f"use_fast_blas() changed nothing: {missing}", RuntimeWarning, stacklevel=2)


def report() -> Runtime:
    """Return the version, backend and device of MLX, and its BLAS.

    Raises `MissingExtraError` if MLX is installed without a backend, as after `pip install mlx` on Linux.

    >>> report().backend in ("metal", "cuda", "cpu")
    True
    """
    try:
        import mlx.core as mx
    except ImportError as error:
        raise MissingExtraError(
            f'MLX cannot start: {error}. On Linux, MLX needs a backend. Install the CPU backend with: pip install "mlxfp[cpu]", or the '
            'backend for NVIDIA GPUs with: pip install "mlxfp[cuda]".'
        ) from error
    backend: Literal["metal", "cuda", "cpu"] = "metal" if mx.metal.is_available() else "cuda" if mx.cuda.is_available() else "cpu"
    library = blas_library(mx.__file__) if sys.platform == "linux" else None
    return Runtime(
        mlx=version("mlx"),
        backend=backend,
        device=str(mx.device_info()["device_name"]),
        blas="Accelerate" if sys.platform == "darwin" else str(library or "inside MLX"),
        slow=backend == "cpu" and library is not None and is_reference(library),
        memory=mx.get_memory_limit(),
    )


def _matmul_speed() -> float:
    """Return the speed of a float32 product of two square matrices in GFLOP/s, the best of five runs."""
    import mlx.core as mx

    left, right = mx.random.normal((2, 1024, 1024), key=mx.random.key(0))
    mx.eval(left, right)
    return 2 * 1024**3 / min(repeat(lambda: mx.eval(left @ right), number=1, repeat=5)) / 1e9


@cache  # once per process
def warn_if_slow() -> None:
    """Warn once per process if MLX multiplies matrices with the reference BLAS.

    >>> warn_if_slow()
    """
    runtime = report()
    if runtime.slow:
        warnings.warn(
            f"MLX multiplies matrices with the reference BLAS here ({runtime.blas}), about 20 times slower than OpenBLAS. "
            "Call mlxfp.runtime.use_fast_blas() before anything imports mlx.core; if OpenBLAS is missing, its warning names the package.",
            RuntimeWarning,
            stacklevel=2,
        )


def show_progress(mode: Literal["auto", "always", "never"]) -> None:
    """Choose when mlxfp shows the progress of long work, such as `load`, `write` and training, on standard error.

    - `"auto"` (default): show a progress bar on terminals and in notebooks, for work longer than two seconds. If standard error is a file,
      only commands and `observers.progress` write lines to the file.
    - `"always"`: if standard error is a file, all long work writes a line after two seconds and then every thirty seconds.
    - `"never"`: show no progress.

    The function sets the environment variable `MLXFP_PROGRESS` (`1`: always, `0`: never), which child processes inherit. Only the
    main thread of the first rank shows progress.

    >>> show_progress("never")
    >>> os.environ.pop("MLXFP_PROGRESS")
    '0'
    """
    check_choice(("auto", "always", "never"), mode=mode)
    os.environ[SETTING] = {"auto": "", "always": "1", "never": "0"}[mode]


if __name__ == "__main__":
    use_fast_blas()
    print(f"{report()}\nmatmul   {_matmul_speed():.0f} GFLOP/s (float32, 1024 x 1024)")  # noqa: T201  # printing is the purpose of the command
