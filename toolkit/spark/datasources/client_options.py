"""The client configuration in the options of a reader."""

from __future__ import annotations

from toolkit.config import ClientConfig
from toolkit.errors import UsageError
from toolkit.spark.datasources.reader_options import Options
from toolkit.spark.datasources.secret_options import ConnectingSource, refuse_secrets

PREFIX = "kafka."
CONNECTION = ("commandConfig", "timeout")
"""Options of every source that connects, besides client keys with `PREFIX`."""


def client_config(options: Options, source: ConnectingSource) -> ClientConfig:
    """The client configuration from the options.

    Set ``kafka.bootstrap.servers`` and any other client key with the prefix ``kafka.``, as for Spark's own Kafka
    source; or ``commandConfig``, the path of a ``client.properties`` on Spark's driver, with no other ``kafka.`` option
    than the servers. The default is the configuration of ``toolkit.spark.register(spark, config=...)``.

    A secret is safest in the file or in ``register``: then no text of Spark contains it. Classic Spark never shows a
    secret that is an option. Spark Connect has it in the text of the request, where `toolkit.spark.register` makes
    Spark redact it. If Spark does not allow that, or the source was registered in another way, the option is refused.

    Parameters
    ----------
    options
        All options of the reader.
    source
        The data source, with the configuration of its registration.

    Raises
    ------
    UsageError
        If the options name no cluster or contain a secret that Spark would show, or as `ClientConfig` does. The text
        contains keys and files, never a secret.
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
                f"commandConfig and {PREFIX}{min(keys)} both configure the client.", do="Set everything in the file."
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
