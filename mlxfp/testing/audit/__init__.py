"""Checks of any data loader: row order, workers, resuming, ranks, errors and memory.

A loader under audit reads the numbers 0 to `rows` - 1 in shuffled order, one number per row. `torch`, `stateful_dataloader`, `grain`,
`datasets`, `mlx_data` and `pipeline` return a `Loader` for a loader factory of their package. For any other loader, write the `run`
function of a `Loader`. `examine` returns printable findings. This module imports neither MLX nor any of these packages.
"""

from mlxfp.testing.audit.adapters import datasets, grain, mlx_data, pipeline, stateful_dataloader, torch
from mlxfp.testing.audit.examining import examine
from mlxfp.testing.audit.values import Finding, Loader

__all__ = ["Finding", "Loader", "datasets", "examine", "grain", "mlx_data", "pipeline", "stateful_dataloader", "torch"]
