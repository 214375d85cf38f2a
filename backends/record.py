"""Observations written beside a case: one JSON file per run, and the compiler's output as a log."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from opsieve.backends.observation import Observation
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import make_folder, write_output


def write_observations(folder: Path, observations: Sequence[Observation]) -> None:
    """Write `observations/NN-target.json` and, where something was printed, `.log`; BadInput when the disk
    refuses.

    Output values are left out: the case holds the inputs, and a target gives its outputs again.
    """
    place = folder / "observations"
    try:
        make_folder(place)
        for number, observation in enumerate(observations):
            # A target holds `/` and `:`, and may be longer than a file name.
            stem = f"{number:02d}-{re.sub(r'[^A-Za-z0-9._=-]', '_', observation.target)[:80]}"
            record = {
                name: value
                for name, value in asdict(observation).items()
                if name not in ("outputs", "log", "reached")
            }
            write_output(place / f"{stem}.json", json.dumps(record, indent=2) + "\n")
            if observation.log:
                write_output(place / f"{stem}.log", observation.log)
    except OSError as error:
        raise BadInput(
            f"cannot write observations into {shown(place, 200)}: {error.strerror or error}."
        ) from error
