"""The client configuration in the options of a reader, with credentials that Spark must not show.

Where Spark shows reader options, tested on 4.0 and 4.3 with a password as an option, at log level INFO:

- Classic Spark never shows the options of a reader: not in plans, on the pages of its UI, in its REST responses, in
  event logs, errors, progress or checkpoints. The options of a statement (``CREATE VIEW ... USING ... OPTIONS``) are in
  the plan of that statement, except those that Spark recognises as passwords.
- Spark Connect shows them all. The text of every request and statement is on the pages Connect, Jobs, Stages and SQL,
  in their REST responses, and in the event log.

This cannot be prevented: Spark 4.0 quotes a statement that it cannot parse in its error. So put no secrets in SQL.
Spark redacts all other texts by ``spark.sql.redaction.string.regex``, which `hide_secrets` sets for the session.

A file (``commandConfig``) and ``register(spark, config=...)`` never appear in such a text. The latter is sent in the
pickled class of the data source, of which Connect shows eight bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from toolkit.config import ClientConfig
from toolkit.config.keys import SECRET_KEY
from toolkit.errors import UsageError
from toolkit.spark.datasources.reader_options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "kafka."
CONNECTION = ("commandConfig", "timeout")
"""Options of every source that connects, besides client keys with `PREFIX`."""
SETTING = "spark.sql.redaction.string.regex"
KEY = rf"kafka\.[\w.-]*(?:{SECRET_KEY.pattern.replace('$', '')})[\w.-]*"
IN_REQUEST = rf'key: "{KEY}"\s+value: "(?:[^"\\]|\\.)*+"?'
IN_TEXT = rf"""{KEY}[\\'"`]*\s*(?:->|=|\\*['"]).*"""  # in a statement or its plan: to the end, for any value
SECRETS = f"(?is){IN_REQUEST}|{IN_TEXT}"


class ConnectingSource:
    """Base of data sources that connect, with the configuration of their registration.

    Attributes
    ----------
    registered
        Default client configuration.
    hides_secrets
        Whether Spark is configured to redact secrets in options.
    """

    registered: ClassVar[ClientConfig | None] = None
    hides_secrets: ClassVar[bool] = False


def hide_secrets(spark: SparkSession) -> bool:
    """Make Spark redact the secrets of reader options in the texts of requests and statements.

    Existing redaction patterns are kept.

    Returns
    -------
    bool
        Whether the session allows this setting; some managed ones do not.
    """
    value = spark.conf.get(SETTING, "") or ""
    if SECRETS in value:
        return True
    try:
        spark.conf.set(SETTING, f"(?:{value})|{SECRETS}" if value else SECRETS)
    except Exception:  # noqa: BLE001 - each Spark raises its own error for a locked setting
        return False
    return True


def connecting(source: type[Any], *, config: ClientConfig | None, hides_secrets: bool) -> type[Any]:
    """A data source class with the configuration of its registration.

    Parameters
    ----------
    source
        A subclass of `ConnectingSource`.
    config, hides_secrets
        See `ConnectingSource`.
    """
    # A class that is in no module is pickled by value, with its attributes.
    return type(source.__name__, (source,), {"registered": config, "hides_secrets": hides_secrets})


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
        The options of the reader.
    source
        The data source, with the configuration of its registration.

    Raises
    ------
    UsageError
        If the options name no cluster or contain a secret that Spark would show, or as `ClientConfig` does. The text
        contains keys and files, never a secret.
    """
    if not source.hides_secrets:
        for name in options:
            if name.lower().startswith(PREFIX) and SECRET_KEY.search(name.lower()):
                raise UsageError(
                    f"The option {name} is a secret, which Spark Connect would show on its pages.",
                    do="Call toolkit.spark.register(spark) first, which redacts it if Spark allows that; or call "
                    "register(spark, config=...); or set commandConfig to the path of a client.properties.",
                )
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
