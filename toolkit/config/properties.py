"""Java's ``.properties`` files, every known key and its treatment, and what a configuration needs beside itself."""

from __future__ import annotations

import re
from typing import Any

from toolkit.errors import UsageError

Properties = dict[str, Any]  # text values; callables (oauth_cb, error_cb, ...) are kept unchanged

# Other names of a canonical key: Java's, and librdkafka's own aliases.
RENAMED = {
    "metadata.broker.list": "bootstrap.servers",
    "request.timeout.ms": "socket.timeout.ms",  # librdkafka also has this name, for the acks of a Produce request
    "sasl.mechanism": "sasl.mechanisms",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}

# Canonical keys that are passed on to librdkafka unchanged.
TLS_KEYS = (
    "enable.ssl.certificate.verification",
    "ssl.ca.certificate.stores",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.curves.list",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.id",
    "ssl.engine.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.providers",
    "ssl.sigalgs.list",
)
PASSWORD_KEYS = ("sasl.username", "sasl.password")
KERBEROS_KEYS = (
    "sasl.kerberos.keytab",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal",
    "sasl.kerberos.service.name",
)
OAUTH_KEYS = (
    "enable.sasl.oauthbearer.unsecure.jwt",
    "https.ca.location",
    "https.ca.pem",
    "oauth_cb",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.grant.type",
    "sasl.oauthbearer.metadata.authentication.type",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.token.endpoint.url",
)
# Converted to the keys above, or an error if this configuration needs Java.
CONSUMED = (
    "bootstrap.servers",
    "config.providers",
    "sasl.client.callback.handler.class",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.mechanisms",
    "security.protocol",
    "ssl.engine.factory.class",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.truststore.location",
    "ssl.truststore.password",
)
# Java keys that only tune its own TLS and login code.
JAVA_ONLY = (
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope.claim.name",
    "security.providers",
    "ssl.enabled.protocols",
    "ssl.keymanager.algorithm",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.truststore.type",
)
KNOWN = frozenset((*RENAMED, *TLS_KEYS, *PASSWORD_KEYS, *KERBEROS_KEYS, *OAUTH_KEYS, *CONSUMED, *JAVA_ONLY))

# Integers and the range that librdkafka accepts; default.api.timeout.ms is Java's, for a call with its retries.
NUMBERS = {
    "default.api.timeout.ms": (1, 2**31 - 1),
    "receive.message.max.bytes": (1_000, 2**31 - 1),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "socket.connection.setup.timeout.ms": (1_000, 2**31 - 1),
    "socket.timeout.ms": (10, 300_000),
}
# Connection keys of an application's file; its other keys are ignored.
FILE_KEYS = KNOWN | {
    "broker.address.family",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "debug",
    "default.api.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "socket.timeout.ms",
}
HIDDEN = "[hidden]"
SECRET_KEY = re.compile(r"password|passphrase|secret|jaas|\.pem$|oauthbearer\.config$|keystore\.key$")


def read_properties(path: str) -> dict[str, str]:
    """The properties of a file: UTF-8, else Latin-1 (which is what Java reads)."""
    data = read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """Java ``.properties`` text to a dict; the last of equal keys wins (``java.util.Properties.load``).

    Raises
    ------
    UsageError
        For a malformed unicode escape; it names the key and not the value.
    """
    import javaproperties

    properties: dict[str, str] = {}
    position = 0
    try:
        for entry in javaproperties.parse(text):
            position += len(entry.source)
            if isinstance(entry, javaproperties.KeyValue):
                properties[_characters(entry.key)] = _characters(entry.value)
    except javaproperties.InvalidUEscapeError:
        pass  # its text may show a part of a secret
    else:
        return properties
    key = re.match(r"\s*([^\\=:\s]*)", text[position:])
    raise UsageError(
        f"The value of {key[1] if key and key[1] else 'a key'} has a malformed \\u escape.",
        do="Write \\u and four hex digits.",
    )


def _characters(text: str) -> str:
    """Without half of a surrogate pair, which no client could encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", do="Check the path and its permissions."
        ) from error


def need_package(package: str, what: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise UsageError(what, do=f"pip install {package}")


def refuse_java(properties: Properties, key: str, *, do: str, own: tuple[str, ...] = ()) -> None:
    """Raise for a key with a Java class, unless it is one of Kafka's own, by the end of its name."""
    if properties.get(key) and not properties[key].endswith(own):
        raise UsageError(f"{key} names Java code, which cannot run here.", do=do)
