"""Write and merge a recording continuously, in a separate process, while another one reads it."""

import datetime as dt
import sys
from pathlib import Path

from tests.sources.recorded import NINE, sample
from toolkit.sources.recording.recorder import SampleWriter

EVERY = dt.timedelta(minutes=15)


def main(directory: Path, count: int) -> None:
    with SampleWriter(directory) as writer:
        for each in range(count):
            due = NINE + each * EVERY
            writer.write(sample(due))
            writer.merge(now=due)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
