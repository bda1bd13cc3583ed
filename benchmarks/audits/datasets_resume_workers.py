"""datasets: a shuffled stream of four shards with two workers raises an IndexError in a resumed run."""

import datasets
import torchdata
from torchdata.stateful_dataloader import StatefulDataLoader


def loader():
    rows = datasets.Dataset.from_dict({"x": range(50)}).to_iterable_dataset(num_shards=4).shuffle(seed=0, buffer_size=10)
    return StatefulDataLoader(rows, batch_size=4, num_workers=2)


if __name__ == "__main__":
    print(f"datasets {datasets.__version__}, torchdata {torchdata.__version__}")
    before, after = loader(), loader()
    states = [before.state_dict() for batch in before]
    after.load_state_dict(states[6])
    print([batch["x"].tolist() for batch in after])
