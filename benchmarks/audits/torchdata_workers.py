"""torchdata: a seeded shuffle gives another order with workers than without.

No public issue is known. pytorch/pytorch#7265 made the order of `DataLoader` independent of the number of workers.
"""

from importlib.metadata import version

import torch
from torchdata.stateful_dataloader import StatefulDataLoader


def rows(workers):
    seeded = torch.Generator().manual_seed(0)
    return [batch.tolist() for batch in StatefulDataLoader(range(12), batch_size=4, shuffle=True, generator=seeded, num_workers=workers)]


if __name__ == "__main__":
    print(f"torchdata {version('torchdata')}, torch {torch.__version__}")
    print("no workers:", rows(0))
    print("2 workers: ", rows(2))
