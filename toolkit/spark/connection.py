"""From the options of a reader to a client's configuration; where its secrets may stand, and where they are shown."""

from __future__ import annotations

from toolkit.config import ClientConfig
from toolkit.errors import UsageError
from toolkit.spark.reader_options import Options

__all__ = ["CONNECTION", "PREFIX", "client_config"]

PREFIX = "kafka."
CONNECTION = ("command.config", "timeout")
"""Options of every source that connects; and any client key after `PREFIX`."""


def client_config(options: Options, *, registered: ClientConfig | None = None) -> ClientConfig:
    """How the options say to reach the cluster.

    ``kafka.bootstrap.servers`` and any other client key after ``kafka.``, as for Spark's own Kafka source; or
    ``command.config``, the path of a ``client.properties`` where Spark's driver runs, with no other ``kafka.`` option
    than the servers. Without either it is what `toolkit.spark.register` was given.

    Parameters
    ----------
    registered
        What the source was registered with.

    Raises
    ------
    UsageError
        If they name no cluster, or as `ClientConfig` does. It names keys and files, never a secret.
    """
    by_key = {name.lower(): value for name, value in options.items()}
    said = {key.removeprefix(PREFIX): value for key, value in by_key.items() if key.startswith(PREFIX)}
    path = options.get("command.config")
    if path is not None:
        servers = said.pop("bootstrap.servers", None)
        if said:
            raise UsageError(
                f"command.config and {PREFIX}{min(said)} both say how to connect.", do="Say all of it in the file."
            )
        return ClientConfig.from_properties(path, bootstrap_servers=servers)
    if not said and registered is not None:
        return registered
    if "bootstrap.servers" not in said:
        raise UsageError(
            "The options name no cluster.",
            do="Say kafka.bootstrap.servers or command.config; or register(spark, config=...) once.",
        )
    return ClientConfig(said)
