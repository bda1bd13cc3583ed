"""The numbers in events, by name, for logs and trackers."""

from mlxfp.training.loop.events import EpochEnded, Evaluated, Event, MemoryRead, Stepped
from mlxfp.training.optimization.learning_rates import learning_rates


def numbers_of(event: Event) -> dict[str, float]:
    """Return the metrics of an event, with the learning rates where a step has been read, or the bytes of memory."""
    match event:
        case Stepped(metrics=metrics) if metrics:
            rates = learning_rates(event.state.opt)
            names = ["learning_rate"] if len(rates) == 1 else [f"learning_rate/{group}" for group in range(len(rates))]
            return {**metrics, **dict(zip(names, rates, strict=True))}
        case EpochEnded(metrics=metrics) | Evaluated(metrics=metrics):
            return dict(metrics)
        case MemoryRead(active=active, peak=peak, cache=cache):
            return {"memory/active": active, "memory/peak": peak, "memory/cache": cache}
    return {}
