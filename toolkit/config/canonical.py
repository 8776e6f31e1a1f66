"""Librdkafka or Java keys to the canonical form: librdkafka's keys, checked and complete."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from toolkit.config.keys import KNOWN, NUMBERS, RENAMED, SECRET_KEY, Properties
from toolkit.config.sasl import sasl
from toolkit.config.tls import tls
from toolkit.errors import UsageError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def canonical(user_properties: Mapping[str, object]) -> Properties:
    """The canonical form; only the keys that the protocol uses are read."""
    refuse_misspelt(user_properties)
    properties = _renamed(user_properties)
    _refuse_indirection(properties)
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
        key = RENAMED.get(name, name)
        if value is None:
            continue
        if not callable(value):
            value = str(value).lower() if isinstance(value, bool) else str(value)
            value = value if SECRET_KEY.search(key) else value.strip()
        if properties.setdefault(key, value) != value:
            names = sorted({other for other in user_properties if RENAMED.get(other, other) == key})
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


def _refuse_indirection(properties: Properties) -> None:
    """Raise for values of a Java config provider (KIP-421)."""
    if "config.providers" not in properties:
        return
    for key, value in properties.items():
        if isinstance(value, str) and re.search(r"\$\{.*\}", value):
            raise UsageError(
                f"{key} takes its value from a Java config provider, which cannot run here.",
                do="Set the value itself.",
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
