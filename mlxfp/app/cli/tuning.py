"""`mlxfp tune`: better values for a configuration."""

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from mlxfp.app.cli.configuring import add_code, add_config, known_names, loaded
from mlxfp.app.cli.parsing import Commands, add_command, say, start_mlx, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfp.app.runs import TrialEnded, Tuned


def add(commands: Commands) -> None:
    """Add `tune`."""
    example = (
        "mlxfp tune titanic --data data/titanic model.name=lightgbm --trials 30 --minutes 10\n"
        "mlxfp tune run.yaml --trials 30 --nested --vary model.dropout=null --vary 'model.size={choice: [tiny, mini]}'"
    )
    tune = add_command(commands, "tune", _tune, example=example)
    add_config(tune)
    tune.add_argument("--trials", metavar="N", type=int, help="begin no more trials than this in all, with those of earlier calls")
    tune.add_argument("--minutes", metavar="M", type=float, help="begin no trial after this time")
    tune.add_argument(
        "--vary",
        metavar="KEY={KIND: [...]}",
        action="append",
        default=[],
        help="what may change: float, log or int with the lowest and the highest value, or choice; KEY=null leaves an option as it is",
    )
    tune.add_argument(
        "--nested", action="store_true", help="estimate the gain on rows that have no part in tuning; for each fold as long again"
    )
    add_code(tune)


def _tune(options: Namespace) -> int:
    """Search for better values of a configuration, and write it with them. Run it again to continue, also from several processes."""
    for problem in start_mlx():
        warn(problem)
    from mlxfp.app.runs import Noted, TrialEnded, Tuned, tune

    config = loaded(options, known_names()).config
    events = tune(config, trials=options.trials, minutes=options.minutes, vary=options.vary, nested=options.nested, code=options.code)
    said = set[str]()
    for event in events:
        match event:
            case Noted(message=message) if message not in said:  # each trial may have the same to say
                said.add(message)
                warn(message)
            case TrialEnded():
                say(_of_trial(event))
            case Tuned():
                say("\n".join(_outcome(event)))
    return 0


def _of_trial(event: "TrialEnded") -> str:
    values = " ".join(f"{name}={_short(value)}" for name, value in event.values.items()) if event.trial else "the configuration as it is"
    ended = f"{event.score:.4f}" if event.score is not None else event.outcome + (f" ({event.reason})" if event.reason else "")
    return f"{event.folder}: trial {event.trial}: {ended}: {values}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _outcome(event: "Tuned") -> "Iterator[str]":
    yield (
        f"{event.folder}: the best of {event.trials} trials is {event.trial}: {event.metric} {event.score:.4f}, to {event.given:.4f} of "
        "the configuration as it is. These folds have chosen it, so its score is too good."
    )
    if event.nested is not None:
        yield f"{event.folder}: on rows that had no part in tuning: {event.nested:.4f}, to {event.given:.4f} of the configuration as it is."
    yield f"{event.config} is the best configuration: mlxfp run {event.config}"
