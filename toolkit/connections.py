"""`connect` opens a cluster, a log directory, a recording, a recorded sample or the embedded lab."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Unpack

from toolkit.actions.audit import Audit
from toolkit.config.clusters import NamedCluster, named_cluster
from toolkit.errors import NotFound
from toolkit.formats.flink_checkpoint import FlinkCheckpoints
from toolkit.formats.log_dir_files import log_path
from toolkit.lab.connected_source import ConnectedSource
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.logdir import LogDir
from toolkit.sources.logdir.contents import FileArguments, FileAssertions
from toolkit.sources.recording import Recording
from toolkit.sources.recording.recording import is_recording

LAB, SAMPLE, NAMED = "lab", "sample:", "cluster:"
SOURCES = (
    'Use a broker\'s host:port, "cluster:NAME" of clusters.toml, the path of a log directory or recording, "lab" or '
    '"sample:NAME".'
)
ADDRESSES = re.compile(r"[^/\s,]+:\d+(,\s*[^/\s,]+:\d+)*")


def connect(
    source: str,
    *,
    staged: Mapping[str, str] | None = None,
    version: str = "4.3.1",
    command_config: str = "",
    **assertions: Unpack[FileArguments],
) -> ConnectedSource:
    """Open a source by its address, path or name.

    Parameters
    ----------
    source
        ``host:9092,...``: a cluster. ``cluster:prod-eu``: one of the file of clusters, as by ``--cluster``.
        A path: a log directory (also ``s3://``, ``gs://``, ``abfss://``), output of kafka-dump-log.sh, or a
        recording. ``lab``: a real Kafka on this machine, with incidents staged; it is started once for the same
        incidents until it is closed. ``sample:late-message``: a recorded sample (`toolkit.lab.samples.names`).
    staged
        For the lab: maps a topic to the name of an incident (`toolkit.lab.incidents.INCIDENTS`).
    version
        For the lab: Kafka version.
    command_config
        For a cluster: path of the client properties file, as for ``--command-config``.
    **assertions
        For a log directory: ``consistent_copy``, ``as_of``, ``txn_state_partitions``, as for `toolkit.LogDir`.

    Returns
    -------
    ConnectedSource
        A context manager; closed when the interpreter exits at the latest.

    Raises
    ------
    NotFound
        If the sample or path does not exist.
    UsageError
        If the incidents need different clusters, or the file of clusters has none of that name.
    LabError
        If the lab does not start.
    """
    FileAssertions.of(**assertions)  # of another name none is left unread, whatever the source
    if not source.strip():
        raise NotFound("No source is named.", do=SOURCES)
    if source == LAB:
        from toolkit.lab.lab_source import STAGED, open_lab

        return open_lab(STAGED if staged is None else staged, version)
    if source.startswith(SAMPLE):
        from toolkit.lab.lab_source import open_sample
        from toolkit.lab.samples import load

        return open_sample(load(source.removeprefix(SAMPLE)))
    if ADDRESSES.fullmatch(source):
        return _cluster(NamedCluster(name="", bootstrap_server=source, command_config=command_config))
    if source.startswith(NAMED):
        return _cluster(named_cluster(source.removeprefix(NAMED)))
    path = log_path(source)
    if isinstance(path, Path):
        path = path.expanduser()
        if not path.exists():
            raise NotFound(f"{source!r} does not exist.", do=SOURCES)
        if is_recording(path):
            return ConnectedSource(Recording(path), audit=Audit())
    return ConnectedSource(LogDir(path, **assertions), audit=Audit())


def _cluster(named: NamedCluster) -> ConnectedSource:
    with ExitStack() as resources:
        checkpoints = FlinkCheckpoints(*named.flink_checkpoints)
        cluster = Cluster(named.config, timeout=named.timeout or 30.0, flink_checkpoints=checkpoints)
        source = ConnectedSource(resources.enter_context(cluster), audit=Audit())
        source.own(resources)
        return source
