"""Clusters by name: a file of the user says how to connect to each, so that a command needs ``--cluster NAME`` only."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from toolkit.config.client import ClientConfig
from toolkit.errors import UsageError
from toolkit.schema.durations import duration_s

CLUSTERS_VARIABLE = "KAFKA_TXN_CLUSTERS"
KEYS = ("bootstrap-server", "command-config", "timeout", "flink-checkpoint")
"""Of a cluster; passwords are in the file of ``command-config`` only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCluster:
    """How to connect to a cluster of the file."""

    name: str
    bootstrap_server: str | None = None
    command_config: str | None = None
    timeout: float | None = None  # seconds
    flink_checkpoints: tuple[Path, ...] = ()

    @property
    def config(self) -> ClientConfig:
        """The client configuration. Raises UsageError as `ClientConfig`."""
        return ClientConfig.of(self.bootstrap_server, self.command_config)


def clusters_file() -> Path:
    """The file of named clusters: that of the environment, else the user's."""
    named = os.environ.get(CLUSTERS_VARIABLE)
    return Path(named).expanduser() if named else user_config_path("kafka-txn") / "clusters.toml"


def named_clusters() -> dict[str, NamedCluster]:
    """The clusters of the file, by name, in its order.

    Raises UsageError if it cannot be read, or a cluster in it has an unknown key or a wrong value, which is not shown.
    """
    path = clusters_file()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{path} does not exist; it names the clusters.",
            do=f"Write it, with a table for each cluster, such as [prod-eu] with bootstrap-server = "
            f'"broker:9092", or set {CLUSTERS_VARIABLE} to another file.',
        ) from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", do=f"Name another file by {CLUSTERS_VARIABLE}."
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8.", do="Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}.", do="Correct that line.") from None
    if not content:
        raise UsageError(f"{path} names no cluster.", do="Add a table such as [prod-eu].")
    return {name: _cluster(name, table, path) for name, table in content.items()}


def named_cluster(name: str) -> NamedCluster:
    """The cluster of that name. Raises UsageError if the file has none, and as `named_clusters`."""
    clusters = named_clusters()
    if name not in clusters:
        raise UsageError(f"{clusters_file()} has no cluster {name!r}.", do=f"It has {', '.join(clusters)}.")
    return clusters[name]


def _cluster(name: str, table: Any, path: Path) -> NamedCluster:
    def wrong(what: str, do: str) -> UsageError:
        return UsageError(f"{path}: [{name}] {what}.", do=do)

    if not isinstance(table, Mapping):
        raise UsageError(f"{path}: {name} stands in no table.", do="Put it below a name such as [prod-eu].")
    if not name or name.startswith("-"):
        raise wrong("is no name for --cluster", "Use another one.")
    if unknown := [key for key in table if key not in KEYS]:
        raise wrong(
            f"has {unknown[0]!r}, which is none of {', '.join(KEYS)}",
            "Client properties and secrets belong into the file of command-config.",
        )
    for key in ("bootstrap-server", "command-config"):
        if key in table and not (isinstance(table[key], str) and table[key]):
            raise wrong(f"{key} is no text", f'Write it as {key} = "...".')
    if not {"bootstrap-server", "command-config"} & table.keys():
        raise wrong("has neither bootstrap-server nor command-config", 'Add bootstrap-server = "broker:9092".')
    checkpoints = table.get("flink-checkpoint", [])
    checkpoints = [checkpoints] if isinstance(checkpoints, str) else checkpoints
    if not (isinstance(checkpoints, list) and all(isinstance(each, str) and each for each in checkpoints)):
        raise wrong("flink-checkpoint is no path", 'Write it as flink-checkpoint = ["/checkpoints/job"].')
    timeout = table.get("timeout")
    try:
        seconds = None if timeout is None else duration_s(timeout)
    except (ValueError, AttributeError):
        raise wrong("timeout is no duration", 'Write it as timeout = "30s".') from None
    if seconds is not None and seconds < 0.1:
        raise wrong("timeout is too short", "Use 0.1s or more.")
    config = table.get("command-config")
    return NamedCluster(
        name=name,
        bootstrap_server=table.get("bootstrap-server"),
        command_config=None if config is None else str(path.parent / Path(config).expanduser()),
        timeout=seconds,
        flink_checkpoints=tuple(path.parent / Path(each).expanduser() for each in checkpoints),
    )
