"""The manifests of copied log directories, as far as they are of the files that are there."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping

from toolkit.errors import DecodeError
from toolkit.formats.copy_manifest import MANIFEST, CopiedFile, CopyManifest, read_manifest
from toolkit.formats.log_dir_files import is_remote_file
from toolkit.sources.logdir.replica.log_dir_layout import LogDirRoot, SkippedFile
from toolkit.sources.logdir.replica.partition_folder import FolderLog
from toolkit.sources.logdir.replica.replica_log import ReplicaLog


class Copies:
    """When log directories were copied, and how.

    `as_of`: when those without a manifest were copied, as the caller asserts; null if unknown.
    """

    def __init__(self, as_of: dt.datetime | None = None) -> None:
        self.as_of = as_of
        self._manifests: dict[LogDirRoot, CopyManifest | None] = {}
        self._folders: dict[LogDirRoot, dict[str, dict[str, CopiedFile]]] = {}
        self._errors: dict[LogDirRoot, str] = {}

    def left_out(self, roots: Iterable[LogDirRoot]) -> Iterator[SkippedFile]:
        """Manifests of log directories that cannot be read."""
        for root in roots:
            if self.manifest(root) is None and root in self._errors:
                yield SkippedFile(root.path / MANIFEST, f"MANIFEST: {self._errors[root]}.")

    def manifest(self, root: LogDirRoot | None) -> CopyManifest | None:
        """The manifest of a log directory; null if there is none, or it cannot be read."""
        if root is not None and root not in self._manifests:
            self._manifests[root] = None
            try:
                self._manifests[root] = read_manifest(root.path)
            except DecodeError as error:
                self._errors[root] = error.what
            except OSError as error:
                self._errors[root] = f"it cannot be read: {error.strerror}"
        return None if root is None else self._manifests[root]

    def files(self, log: FolderLog) -> Mapping[str, CopiedFile]:
        """The files of a log by name, by the manifest."""
        manifest = self.manifest(log.root)
        if manifest is not None and log.root not in self._folders:
            self._folders[log.root] = manifest.by_folder()
        return self._folders.get(log.root, {}).get(log.replica.path.name, {})

    def moment(self, log: ReplicaLog) -> dt.datetime | None:
        """When a log was copied, by the manifest or by the caller; null if unknown."""
        manifest = self.manifest(log.root)
        return self.as_of if manifest is None or self.doubt(log) is not None else manifest.moment

    def doubt(self, log: ReplicaLog) -> str | None:
        """Why the manifest does not prove when a log was copied; null if it does."""
        manifest = self.manifest(log.root)
        if manifest is None or not isinstance(log, FolderLog):
            return f"{log.where} was not copied by kafka-txn copy"
        if manifest.moment is None:
            return "the copy was not finished: run kafka-txn copy again"
        if not manifest.is_running:
            return (
                f"no broker ran on {manifest.source} while it was copied; if all were shut down cleanly, say "
                "--consistent-copy"
            )
        folder = log.replica.path.name
        if folder in manifest.incomplete:
            return f"{folder} changed faster than it was copied"
        copied = {name: file.size for name, file in self.files(log).items()}
        present = {name: stamp.size for name, stamp in log.listing.stamps.items() if not is_remote_file(name)}
        different = sorted(name for name in copied.keys() | present.keys() if copied.get(name) != present.get(name))
        return f"{folder}/{different[0]} is not the file that was copied" if different else None
