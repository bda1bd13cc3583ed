"""mlx-data: a shuffled buffer keeps the order of the first epoch after `reset`. No public issue is known."""

from importlib.metadata import version

import mlx.data as dx

print("mlx-data", version("mlx-data"))
stream = dx.buffer_from_vector([{"x": number} for number in range(12)]).shuffle().to_stream().batch(4)
for epoch in range(3):
    stream.reset()
    print("epoch", epoch, [batch["x"].tolist() for batch in stream])
