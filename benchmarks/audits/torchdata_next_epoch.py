"""torchdata: after a resumed epoch, a seeded shuffle gives another next epoch. No public issue is known."""

from importlib.metadata import version

import torch
from torchdata.stateful_dataloader import StatefulDataLoader


def loader():
    return StatefulDataLoader(range(8), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(0))


print(f"torchdata {version('torchdata')}, torch {torch.__version__}")
first, resumed = loader(), loader()
iterator = iter(first)
next(iterator)
resumed.load_state_dict(first.state_dict())
for name, run in (("uninterrupted", loader()), ("resumed", resumed)):
    print(name, [[batch.tolist() for batch in run] for epoch in range(2)])
