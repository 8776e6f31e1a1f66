"""From the options of a reader to a client's configuration."""

from __future__ import annotations

from toolkit.config import ClientConfig
from toolkit.errors import UsageError
from toolkit.spark.datasources.reader_options import Options
from toolkit.spark.datasources.secret_options import ConnectingSource, refuse_secrets

__all__ = ["CONNECTION", "PREFIX", "client_config"]

PREFIX = "kafka."
CONNECTION = ("commandConfig", "timeout")
"""Options of every source that connects; and any client key after `PREFIX`."""


def client_config(options: Options, source: ConnectingSource) -> ClientConfig:
    """The client configuration from the options.

    ``kafka.bootstrap.servers`` and any other client key after ``kafka.``, as for Spark's own Kafka source; or
    ``commandConfig``, the path of a ``client.properties`` where Spark's driver runs, with no other ``kafka.`` option
    than the servers. Without either it is what `toolkit.spark.register` was given: ``register(spark, config=...)``.

    A secret is safest in the file, or registered: then Spark never has it in a text. As an option, classic Spark does
    not show it anywhere; Spark Connect has it in the text of the request, in which `toolkit.spark.register` has it
    hidden. Where Spark does not let us, or the source was registered in another way, such an option is refused.

    Parameters
    ----------
    source
        What the source was registered with.

    Raises
    ------
    UsageError
        If they name no cluster, a secret that Spark would show, or as `ClientConfig` does. It names keys and files,
        never a secret.
    """
    if not source.hides_secrets:
        refuse_secrets(options)
    by_key = {name.lower(): value for name, value in options.items()}
    keys = {key.removeprefix(PREFIX): value for key, value in by_key.items() if key.startswith(PREFIX)}
    path = options.get("commandConfig")
    if path is not None:
        servers = keys.pop("bootstrap.servers", None)
        if keys:
            raise UsageError(
                f"commandConfig and {PREFIX}{min(keys)} both set how to connect.", do="Set everything in the file."
            )
        return ClientConfig.from_properties(path, bootstrap_servers=servers)
    if not keys and source.registered is not None:
        return source.registered
    if "bootstrap.servers" not in keys:
        raise UsageError(
            "The options name no cluster.",
            do="Set kafka.bootstrap.servers or commandConfig; or call register(spark, config=...) once.",
        )
    return ClientConfig(keys)
