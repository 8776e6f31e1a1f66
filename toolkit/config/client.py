"""The client configuration, for every client, in a canonical form: librdkafka's keys, checked and complete."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from toolkit.config.properties import (
    CONNECTION,
    HIDDEN,
    KAFKA_PYTHON,
    KERBEROS,
    KNOWN,
    LIBRDKAFKA,
    NUMBERS,
    SECRET_KEY,
    VENDORS,
    Properties,
    TokenProvider,
    need_package,
    read_properties,
    sasl,
    ssl_context,
    tls,
    vendor_token,
)
from toolkit.errors import NotFound, UsageError


class ClientConfig:
    """The client configuration, for every client.

    Parameters
    ----------
    source
        ``"host:port[,host:port]"``, a mapping of librdkafka or Java client keys, or another ``ClientConfig``.
        Unknown keys are passed on to librdkafka. Values are text, numbers or booleans;
        callables (``oauth_cb``, ``error_cb``) are kept as they are.

    Raises
    ------
    UsageError
        For a missing or malformed ``bootstrap.servers``, an unknown protocol or mechanism, a mechanism without
        its credentials, a key that looks like a misspelt security key, an unreadable store, or a part of a Java
        configuration that needs Java code. It names keys and files, never a secret.

    Notes
    -----
    Two configurations are equal when their canonical forms are. Only what the protocol uses is read: a truststore
    beside ``PLAINTEXT`` is never opened. PKCS#12 stores are read here, once, into inline PEM keys.
    A pickle carries the secrets, as a worker needs them; ``repr`` and :meth:`masked` do not.

    Examples
    --------
    >>> ClientConfig({"bootstrap.servers": "b1:9093", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
    ...               "sasl.username": "ann", "sasl.password": "s3cr3t"}).masked()["sasl.password"]
    '[hidden]'
    """

    __slots__ = ("_properties", "file")  # so that vars() shows no secret
    _properties: Properties
    file: str  # that it was read from, for a command line; empty if it was not

    def __init__(self, source: str | Mapping[str, object] | ClientConfig, *, file: str = "") -> None:
        if isinstance(source, ClientConfig):
            properties = dict(source._properties)
        else:
            properties = canonical({"bootstrap.servers": source} if isinstance(source, str) else source)
        object.__setattr__(self, "_properties", properties)
        object.__setattr__(self, "file", source.file if isinstance(source, ClientConfig) else file)

    @classmethod
    def of(cls, bootstrap_servers: str | None, command_config: str | os.PathLike[str] | None) -> ClientConfig:
        """That of ``--bootstrap-server`` and ``--command-config``, of which one may be missing. Raises UsageError."""
        if command_config:
            return cls.from_properties(command_config, bootstrap_servers=bootstrap_servers)
        return cls(bootstrap_servers or "")

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str], *, bootstrap_servers: str | None = None) -> ClientConfig:
        """Read a Java ``client.properties`` file, the one the application or ``--command-config`` uses.

        Parameters
        ----------
        path
            The file; UTF-8, else Latin-1 (which is what Java reads).
        bootstrap_servers
            ``"host:port[,host:port]"``, in place of those in the file.

        Raises
        ------
        UsageError
            If the file cannot be read, and as for the constructor. Keys for serializers, acks, groups and the
            like are ignored: they are the application's.
        """
        user_properties = read_properties(os.fspath(path))
        if bootstrap_servers is not None:
            user_properties.pop("metadata.broker.list", None)
            user_properties["bootstrap.servers"] = bootstrap_servers
        refuse_misspelt(user_properties)
        own = {key: value for key, value in user_properties.items() if key in KNOWN | CONNECTION}
        return cls(own, file=os.fspath(path))

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        """The bootstrap servers, as ``host:port``."""
        return tuple(self._properties["bootstrap.servers"].split(","))

    @property
    def principal(self) -> str | None:
        """User name at the brokers; null if there is none: of a certificate or a token, only they know it."""
        return self._properties.get("sasl.username") or self._properties.get("sasl.kerberos.principal")

    def librdkafka(self) -> dict[str, Any]:
        """The configuration for confluent-kafka; a new dict, with the secrets in it."""
        return dict(self._properties)

    def kafka_python(self) -> dict[str, Any]:
        """Keyword arguments for kafka-python's connection manager; a new dict, with the secrets in it.

        ``ssl_context`` is built here. ``sasl_oauth_token_provider`` is a `TokenProvider`, and ``sasl_kerberos_name``
        a dict of this form's keys: the module that imports kafka-python makes it take these.

        Raises
        ------
        UsageError
            If a certificate or key does not load, or this mechanism needs a missing Python package.
        """
        properties = self._properties
        kwargs: dict[str, Any] = {name: properties[key] for key, name in KAFKA_PYTHON.items() if key in properties}
        kwargs["bootstrap_servers"] = list(self.bootstrap_servers)
        if properties["security.protocol"].endswith("SSL"):
            kwargs["ssl_context"] = ssl_context(properties)
        mechanism = properties.get("sasl.mechanisms", "")
        if mechanism == "OAUTHBEARER":
            if properties.get("oauth_cb") is vendor_token:
                vendor = VENDORS[json.loads(properties["sasl.oauthbearer.config"])["vendor"]]
                what = f"{vendor.service} needs the Python package {vendor.package}."
                need_package(vendor.module, what, package=vendor.package)
            kwargs["sasl_oauth_token_provider"] = TokenProvider(properties)
        elif mechanism == "GSSAPI":
            need_package("gssapi", "Kerberos (GSSAPI) needs the Python package gssapi.")
            kwargs["sasl_kerberos_name"] = {key: properties[key] for key in KERBEROS if key in properties}
        elif mechanism.startswith("SCRAM"):
            # kafka-python sends a name as it is, without the escapes of RFC 5802, section 5.1
            kwargs["sasl_plain_username"] = properties["sasl.username"].replace("=", "=3D").replace(",", "=2C")
        return kwargs

    def masked(self) -> dict[str, str]:
        """The canonical keys and values, every secret as ``[hidden]``; safe to print and to log."""
        return {
            key: HIDDEN if SECRET_KEY.search(key) else value if isinstance(value, str) else "(callable)"
            for key, value in sorted(self._properties.items())
        }

    def scrub(self, text: str) -> str:
        """Hide every secret of this configuration that occurs in a text, such as a client's error message."""
        for secret in sorted(set(_secrets(self._properties)), key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    def __repr__(self) -> str:
        return f"ClientConfig({self.masked()})"

    def __eq__(self, other: object) -> bool:
        return self._properties == other._properties if isinstance(other, ClientConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._properties.items()))

    def __setattr__(self, name: str, *value: object) -> NoReturn:
        raise AttributeError(f"a ClientConfig does not change; build another one ({name})")

    __delattr__ = __setattr__

    def __reduce__(self) -> tuple[type[ClientConfig], tuple[Properties]]:
        return ClientConfig, (self._properties,)


def _secrets(properties: Properties) -> Iterator[str]:
    """Every secret text: values, lines of keys, and both as printed by ``repr``."""
    for key, value in properties.items():
        if SECRET_KEY.search(key) and isinstance(value, str):
            lines = value.splitlines() if key.endswith(".pem") else []
            for text in (value, *(line for line in lines if len(line) >= 16 and not line.startswith("-----"))):
                yield from {text, repr(text)[1:-1]} - {""}


PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def canonical(user_properties: Mapping[str, object]) -> Properties:
    """The canonical form; only the keys that the protocol uses are read."""
    refuse_misspelt(user_properties)
    properties = _renamed(user_properties)
    protocol = str(properties.get("security.protocol", "PLAINTEXT")).upper()
    if protocol not in PROTOCOLS:
        raise UsageError(
            f"security.protocol is {protocol!r}, which Kafka does not have.", do=f"Use one of {', '.join(PROTOCOLS)}."
        )
    form: Properties = {"client.id": "kafka-txn-toolkit"}
    form |= {key: value for key, value in properties.items() if key not in KNOWN}
    form |= {"bootstrap.servers": _servers(properties.get("bootstrap.servers")), "security.protocol": protocol}
    if protocol.endswith("SSL"):
        form |= tls(properties)
    if protocol.startswith("SASL"):
        form |= sasl(properties)
    return form | _numbers(properties)


def _renamed(user_properties: Mapping[str, object]) -> Properties:
    """Canonical key names and text values; two spellings of a key must agree."""
    properties: Properties = {}
    for name, value in user_properties.items():
        key = LIBRDKAFKA.get(name, name)
        if value is None:
            continue
        if not callable(value):
            value = str(value).lower() if isinstance(value, bool) else str(value)
            value = value if SECRET_KEY.search(key) else value.strip()
            if "config.providers" in user_properties and re.search(r"\$\{.*\}", value):  # KIP-421
                raise UsageError(
                    f"{key} takes its value from a Java config provider, which cannot run here.",
                    do="Set the value itself.",
                )
        if properties.setdefault(key, value) != value:
            names = sorted({other for other in user_properties if LIBRDKAFKA.get(other, other) == key})
            raise UsageError(f"{' and '.join(names)} have different values.", do="Keep one of them.")
    return properties


def refuse_misspelt(user_properties: Mapping[str, object]) -> None:
    for key in user_properties:
        if key in KNOWN:
            continue
        close = difflib.get_close_matches(key, KNOWN, n=1, cutoff=0.85)
        if close and not key.endswith("." + close[0]):  # "producer.security.protocol" is not a misspelling
            raise UsageError(
                f"There is no client key {key!r}.",
                means="The client would ignore it, and connect without it.",
                do=f"Did you mean {close[0]!r}?",
            )


def _servers(value: object) -> str:
    if not value:
        raise UsageError("bootstrap.servers is missing.", do="Set one broker or more, as host:port[,host:port].")
    servers = [re.sub(r"^\w+://", "", entry.strip()) for entry in str(value).split(",") if entry.strip()]
    for server in servers or [""]:
        match = re.fullmatch(r"(\[[0-9A-Fa-f:.%\w-]+\]|[\w.-]+):(\d{1,5})", server)
        if not match or not 1 <= int(match[2]) <= 65535:
            address = server.rpartition("@")[2]  # not the part before it, which may be a password
            raise UsageError(
                f"{address!r} in bootstrap.servers is not host:port.", do="Write it like broker-1.example.com:9092."
            )
    return ",".join(servers)


def _numbers(properties: Properties) -> Properties:
    """Integers, clipped to the range that librdkafka accepts."""
    merged: Properties = {}
    for key, (low, high) in NUMBERS.items():
        if key in properties:
            if not re.fullmatch(r"\d{1,10}", properties[key]):
                raise UsageError(f"{key} is {properties[key]!r}.", do="Use an integer.")
            merged[key] = str(min(max(int(properties[key]), low), high))
    return merged


NO_WIDGET = re.compile("InputWidgetNotDefined|no input widget named", re.IGNORECASE)  # text of a Java error


def param(name: str, default: str, *, dbutils: Any = None) -> str:
    """A parameter of a notebook: the value of the widget of that name, or a default.

    Parameters
    ----------
    name
        Name of the widget, and of the parameter of a job.
    default
        Returned if there is no such widget, or outside Databricks.
    dbutils
        The ``dbutils`` of Databricks; the notebook's own if null.
    """
    dbutils = dbutils or _notebooks_own()
    if dbutils is None:
        return default
    try:
        return str(dbutils.widgets.get(name))
    except Exception as error:
        if not NO_WIDGET.search(f"{type(error).__name__}: {error}"):
            raise
        return default


def config_from_scope(
    source: str | Mapping[str, object], secrets: Mapping[str, str], *, scope: str, dbutils: Any = None
) -> ClientConfig:
    """A client configuration with secrets of a scope, which are masked in its texts.

    Parameters
    ----------
    source
        Other properties, as for `ClientConfig`.
    secrets
        Name of the secret in the scope by configuration key: ``{"sasl.password": "kafka-password"}``.
    scope
        Name of the secret scope.
    dbutils
        The ``dbutils`` of Databricks; the notebook's own if null.

    Raises
    ------
    UsageError
        Outside Databricks, for a key that is set twice, and as for `ClientConfig`.
    NotFound
        If the scope or a secret does not exist or may not be read.

    Examples
    --------
    >>> config_from_scope(
    ...     {"bootstrap.servers": "b1:9093", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
    ...      "sasl.username": "ann"},
    ...     {"sasl.password": "kafka-password"}, scope="kafka",
    ... )  # doctest: +SKIP
    """
    dbutils = dbutils or _notebooks_own()
    if dbutils is None:
        raise UsageError(
            "There is no dbutils here, so no secret scope.", do="On another machine, use a client.properties file."
        )
    properties = {"bootstrap.servers": source} if isinstance(source, str) else dict(source)
    if twice := sorted(properties.keys() & secrets.keys()):
        raise UsageError(f"{twice[0]} is set twice: as an argument and from the scope.", do="Keep one of them.")
    return ClientConfig({**properties, **{key: _secret(dbutils, scope, name) for key, name in secrets.items()}})


def _secret(dbutils: Any, scope: str, name: str) -> str:
    try:
        return str(dbutils.secrets.get(scope=scope, key=name))
    except Exception as error:  # noqa: BLE001 - on Databricks it is one of Java's, which has no class here
        kind = type(error).__name__
    raise NotFound(
        f"Secret {name!r} of scope {scope!r} cannot be read ({kind}).",
        do="dbutils.secrets.list(scope) shows its names; reading needs the permission READ on the scope.",
    )


def _notebooks_own() -> Any:
    """The ``dbutils`` in a Databricks notebook's namespace; null elsewhere."""
    main = sys.modules.get("__main__")
    own = getattr(main, "dbutils", None)
    if own is not None or "IPython" not in sys.modules:
        return own
    shell = sys.modules["IPython"].get_ipython()
    return None if shell is None else shell.user_ns.get("dbutils")
