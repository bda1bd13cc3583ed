"""The backend and device that MLX uses, and a fast BLAS for it on Linux without a GPU.

The MLX wheel for Linux CPU multiplies matrices with the reference BLAS, on one core and without vector instructions.
OpenBLAS is twenty to thirty times faster if it is loaded before MLX, which is what `use_fast_blas` does.
`python -m mlxfp.runtime` calls it and prints the resulting backend, BLAS and speed.
"""

import os
import sys
import warnings
from functools import cache
from importlib.metadata import version
from timeit import repeat
from typing import Literal

from attrs import frozen

from mlxfp.support.blas import THREAD_VARIABLES, blas_library, free_cores, is_reference, load_openblas
from mlxfp.support.checks import check_choice, check_positive
from mlxfp.support.errors import MissingExtraError
from mlxfp.support.progress import SETTING

__all__ = ["Runtime", "measure_matmul", "report", "show_progress", "use_fast_blas", "warn_if_slow"]


def __dir__() -> list[str]:
    return __all__


@frozen
class Runtime:
    """The version, backend and device of MLX, the library that multiplies matrices on the CPU, and whether this library is slow.

    `memory` is how many bytes MLX takes at most before it waits or gives back what it keeps for reuse.

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
        return "\n".join(f"{name:9}{said}" for name, said in lines.items())


def use_fast_blas(*, threads: int | None = None) -> None:
    """Make MLX on Linux CPU multiply matrices with OpenBLAS, on `threads` cores.

    Call it before anything imports `mlx.core`. It loads the system's OpenBLAS (`libopenblas0` on Debian), or that of the wheel
    scipy-openblas32, which the extra `cpu` installs. This wheel gives its functions other names, so three C functions are compiled once
    into the user's cache folder (`$XDG_CACHE_HOME/mlxfp`, else `~/.cache/mlxfp`). A second call does nothing, nor does any call on macOS
    or with CUDA. If it is called too late, or OpenBLAS is not available, a `RuntimeWarning` tells what to do, and MLX stays slow.

    Without `threads`, `OPENBLAS_NUM_THREADS` or `OMP_NUM_THREADS` in the environment says how many. Where nothing says it, OpenBLAS takes
    all cores that other programs leave free: its threads wait by spinning, so more of them are slower by an order of magnitude. A
    `RuntimeWarning` names the number where it is not that of all cores, because the last digits of results may depend on it.

    >>> use_fast_blas(threads=1)

    See also: `report`, `warn_if_slow`.
    """
    if threads is not None:
        check_positive(threads=threads)
    if sys.platform != "linux":
        return
    if "mlx.core" in sys.modules:
        missing: str | None = "mlx.core was imported before it. Call it first, at the top of the program."
    else:
        chosen, word = (threads, None) if threads or any(os.environ.get(name) for name in THREAD_VARIABLES) else _by_load()
        missing = load_openblas(chosen)
        if word and not missing:
            warnings.warn(word, RuntimeWarning, stacklevel=2)
    if missing and report().slow:
        warnings.warn(f"use_fast_blas() changed nothing: {missing}", RuntimeWarning, stacklevel=2)


def _by_load() -> tuple[int | None, str | None]:
    """Return with how many threads OpenBLAS is faster than by itself, and a sentence that says so."""
    free, cores = free_cores()
    if free == cores:
        return None, None
    return free, (
        f"OpenBLAS multiplies matrices with {free} of {cores} threads, because other programs keep the other cores busy. Results may "
        "differ in their last digits from those with another number, so to continue a run bit for bit, name it: "
        f"use_fast_blas(threads={free})."
    )


def report() -> Runtime:
    """Return the version, backend and device of MLX, and its BLAS.

    Raises `MissingExtraError` if MLX is installed without a backend, which is what plain `pip install mlx` does on Linux.

    >>> report().backend in ("metal", "cuda", "cpu")
    True
    """
    try:
        import mlx.core as mx
    except ImportError as error:
        message = f'MLX cannot start: {error}. On Linux it needs a backend. Install it with: pip install "mlxfp[cpu]"'
        raise MissingExtraError(f'{message} (or "mlxfp[cuda]" with an NVIDIA GPU).') from error
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


def measure_matmul(*, size: int = 1024) -> float:
    """Measure the speed of a float32 product of two square matrices, in GFLOP/s: the best of five runs.

    >>> measure_matmul(size=64) > 0
    True
    """
    check_positive(size=size)
    import mlx.core as mx

    left, right = mx.random.normal((2, size, size), key=mx.random.key(0))
    mx.eval(left, right)
    return 2 * size**3 / min(repeat(lambda: mx.eval(left @ right), number=1, repeat=5)) / 1e9


@cache  # once per process
def warn_if_slow() -> None:
    """Warn, once per process, if MLX multiplies matrices with the reference BLAS.

    >>> warn_if_slow()
    """
    now = report()
    if now.slow:
        warnings.warn(
            f"MLX multiplies matrices with the reference BLAS here ({now.blas}), about 20 times slower than OpenBLAS. "
            "Call mlxfp.runtime.use_fast_blas() before anything imports mlx.core; if OpenBLAS is missing, it tells what to install.",
            RuntimeWarning,
            stacklevel=2,
        )


def show_progress(mode: Literal["auto", "always", "never"]) -> None:
    """Say when progress is shown on standard error: of reading, `load`, `cache`, `write`, tokenizers, folds, trials, uploads and training.

    - `"auto"`, as without a call: on terminals and in notebooks, a bar for what takes longer than two seconds. Commands and
      `observers.progress` also write lines into logs.
    - `"always"`: lines into logs, too, after two seconds and then every thirty.
    - `"never"`: nothing.

    It sets the environment variable `MLXFP_PROGRESS` (`1`: always, `0`: never), which programs that this one starts inherit. Only the main
    thread shows anything, and of several ranks the first one.

    >>> show_progress("never")
    >>> os.environ.pop("MLXFP_PROGRESS")
    '0'
    """
    check_choice(("auto", "always", "never"), mode=mode)
    os.environ[SETTING] = {"auto": "", "always": "1", "never": "0"}[mode]


if __name__ == "__main__":
    use_fast_blas()
    print(f"{report()}\nmatmul   {measure_matmul():.0f} GFLOP/s (float32, 1024 x 1024)")  # noqa: T201  # printing is the purpose of the command
