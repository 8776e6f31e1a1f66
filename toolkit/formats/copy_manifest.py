"""The manifest of a copied log directory: which files ``kafka-txn copy`` copied, when, and in which order.

Each file of data is read to its end, then ``__transaction_state``, then what the files of data have gained since. What
is open in the first reading and in the last was open when the coordinators' log was read in between: what a live
diagnosis proves by its two requests to the leader.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from toolkit.errors import DecodeError
from toolkit.formats.log_paths import LogPath
from toolkit.version import __version__

MANIFEST = "kafka-txn-copy.json"
"""Its name, in the copied log directory."""
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFile:
    """A file of the copy."""

    # size, sha256: of the copy
    size: int
    sha256: str
    first_size: int  # its size when the copying of ``__transaction_state`` began; what comes after was added since
    # inode, size and modification time of the source when it was opened: to copy it again if that has changed
    source: tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyManifest:
    """A copy of one log directory."""

    source: str  # the log directory that was copied
    # the copied topics besides ``__transaction_state`` and ``__cluster_metadata``; null for all
    topics: Sequence[str] | None
    # begin, end: when the copying began and ended, by the clock of the machine that copied; no end if it was
    # interrupted
    begin: dt.datetime
    end: dt.datetime | None = None
    # coordinators_begin, coordinators_end: when that of ``__transaction_state`` did
    coordinators_begin: dt.datetime | None = None
    coordinators_end: dt.datetime | None = None
    files: Mapping[str, CopiedFile] = field(default_factory=dict)  # by path below the log directory, with slashes
    # folders that a broker wrote to between begin and end; none in a copy of a stopped broker
    changed: Sequence[str] = ()
    incomplete: Sequence[str] = ()  # folders that changed so fast that their files may not fit together
    # whether a broker of the same machine ran on the source all the while: it held the lock. Files without a broker may
    # be of any time, and of several
    is_running: bool = False
    version: str = __version__  # of the tool

    @property
    def moment(self) -> dt.datetime | None:
        """When the coordinators' log was read, between both readings of the data; null if it was interrupted."""
        return None if self.end is None else self.coordinators_begin

    def by_folder(self) -> dict[str, dict[str, CopiedFile]]:
        """The files of each partition's folder by name; those beside the folders under an empty name."""
        found: dict[str, dict[str, CopiedFile]] = {}
        for path, file in self.files.items():
            folder, _, name = path.rpartition("/")
            found.setdefault(folder, {})[name] = file
        return found

    def to_json(self) -> str:
        """The text of the manifest."""
        values = {"format": FORMAT, **asdict(self)}
        return json.dumps(values, indent=1, default=dt.datetime.isoformat) + "\n"


def parse_manifest(text: bytes | str) -> CopyManifest:
    """Read the text of a manifest. Raises DecodeError if it is none, or of a newer version of the tool."""
    try:
        values: dict[str, Any] = json.loads(text)
        if values.pop("format") != FORMAT:
            raise DecodeError("it is of another version of kafka-txn", position=0)
        for name in ("begin", "end", "coordinators_begin", "coordinators_end"):
            values[name] = None if values[name] is None else dt.datetime.fromisoformat(values[name])
        values["files"] = {
            path: CopiedFile(**{**file, "source": tuple(file["source"])}) for path, file in values["files"].items()
        }
        return CopyManifest(**values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DecodeError(f"it is no manifest: {error}", position=0) from None


def read_manifest(folder: LogPath) -> CopyManifest | None:
    """The manifest of a log directory; null if it has none.

    Raises DecodeError if it is none, or of a newer version of the tool. Raises OSError if it cannot be read.
    """
    try:
        text = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        return None
    return parse_manifest(text)
