"""Every known key: one mapping between Java, librdkafka and kafka-python; and Java's ``.properties`` files."""

from __future__ import annotations

import re
from typing import Any

from toolkit.errors import UsageError

Properties = dict[str, Any]  # text values; callables (oauth_cb, error_cb, ...) are kept unchanged

# Other names of librdkafka's keys, which are the canonical ones: Java's, and librdkafka's aliases.
LIBRDKAFKA = {
    "metadata.broker.list": "bootstrap.servers",
    "request.timeout.ms": "socket.timeout.ms",  # librdkafka also has this name, for the acks of a Produce request
    "sasl.mechanism": "sasl.mechanisms",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_LOGIN = {"username": "sasl.username", "password": "sasl.password"}
SIGNER = {name: name for name in ("awsProfileName", "awsRoleArn", "awsRoleSessionName")}  # of tokens for Amazon MSK
# By mechanism: the login module of a sasl.jaas.config, and librdkafka's keys of its options.
LOGIN_MODULES = {
    "PLAIN": ("PlainLoginModule", _LOGIN),
    "SCRAM-SHA-256": ("ScramLoginModule", _LOGIN),
    "SCRAM-SHA-512": ("ScramLoginModule", _LOGIN),
    "GSSAPI": (
        "Krb5LoginModule",
        {
            "principal": "sasl.kerberos.principal",
            "keyTab": "sasl.kerberos.keytab",
            "serviceName": "sasl.kerberos.service.name",
        },
    ),
    "OAUTHBEARER": (
        "OAuthBearerLoginModule",
        {
            "clientId": "sasl.oauthbearer.client.id",
            "clientSecret": "sasl.oauthbearer.client.secret",
            "scope": "sasl.oauthbearer.scope",
            **SIGNER,
        },
    ),
    "AWS_MSK_IAM": ("IAMLoginModule", SIGNER),
}
# kafka-python's names of librdkafka's keys; timeouts and limits are those of each call.
KAFKA_PYTHON = {
    "client.dns.lookup": "client_dns_lookup",
    "client.id": "client_id",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.password": "sasl_plain_password",
    "sasl.username": "sasl_plain_username",
    "security.protocol": "security_protocol",
}
# Integers and the range that librdkafka accepts.
NUMBERS = {
    "receive.message.max.bytes": (1_000, 2**31 - 1),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "socket.connection.setup.timeout.ms": (1_000, 2**31 - 1),
    "socket.timeout.ms": (10, 300_000),
}

# fmt: off
# librdkafka's keys, by the part of the configuration that takes them.
TLS = frozenset((
    "enable.ssl.certificate.verification", "ssl.ca.certificate.stores", "ssl.ca.location", "ssl.ca.pem",
    "ssl.certificate.location", "ssl.certificate.pem", "ssl.cipher.suites", "ssl.crl.location", "ssl.curves.list",
    "ssl.endpoint.identification.algorithm", "ssl.engine.id", "ssl.engine.location", "ssl.key.location",
    "ssl.key.password", "ssl.key.pem", "ssl.providers", "ssl.sigalgs.list",
))
PASSWORD = ("sasl.username", "sasl.password")
KERBEROS = frozenset((
    "sasl.kerberos.keytab", "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal", "sasl.kerberos.service.name",
))
OAUTH = frozenset((
    "https.ca.location", "https.ca.pem", "oauth_cb", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config", "sasl.oauthbearer.extensions", "sasl.oauthbearer.scope",
    "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.token.endpoint.url",
))
# Connection keys of an application's file beside those of security; its other keys are ignored.
CONNECTION = frozenset((
    "broker.address.family", "client.dns.lookup", "client.id", "client.rack", "debug",
    "socket.connection.setup.timeout.ms", "socket.timeout.ms",
))
# Converted to the keys above, or an error if no client here can do it.
_CONSUMED = (
    "bootstrap.servers", "config.providers", "enable.sasl.oauthbearer.unsecure.jwt",
    "sasl.client.callback.handler.class", "sasl.jaas.config", "sasl.login.callback.handler.class", "sasl.login.class",
    "sasl.mechanisms", "sasl.oauthbearer.grant.type", "sasl.oauthbearer.metadata.authentication.type",
    "sasl.oauthbearer.method", "security.protocol", "ssl.engine.factory.class", "ssl.keystore.location",
    "ssl.keystore.password", "ssl.truststore.location", "ssl.truststore.password",
)
# Java keys that only tune its own TLS and login code.
_IGNORED = (
    "default.api.timeout.ms", "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms", "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope.claim.name", "security.providers", "ssl.enabled.protocols", "ssl.keymanager.algorithm",
    "ssl.keystore.type", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm", "ssl.truststore.type",
)
# fmt: on
KNOWN = frozenset((*LIBRDKAFKA, *TLS, *PASSWORD, *KERBEROS, *OAUTH, *_CONSUMED, *_IGNORED))

HIDDEN = "[hidden]"
SECRET_KEY = re.compile(r"password|passphrase|secret|jaas|\.pem$|oauthbearer\.config$|keystore\.key$")


def read_properties(path: str) -> dict[str, str]:
    """The properties of a file: UTF-8, else Latin-1 (which is what Java reads)."""
    data = read_bytes(path)
    try:
        return parse_properties(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return parse_properties(data.decode("latin-1"))


def parse_properties(text: str) -> dict[str, str]:
    """Java ``.properties`` text to a dict; the last of equal keys wins (``java.util.Properties.load``).

    Raises
    ------
    UsageError
        For a malformed unicode escape; it names the key and not the value.
    """
    import javaproperties

    position = 0
    try:
        for entry in javaproperties.parse(text):
            position += len(entry.source)
    except javaproperties.InvalidUEscapeError:  # its text may show a part of a secret
        key = re.match(r"\s*([^\\=:\s]*)", text[position:])
    else:
        return {_characters(key): _characters(value) for key, value in javaproperties.loads(text).items()}
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


def need_package(module: str, what: str, *, package: str = "") -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise UsageError(what, do=f"pip install {package or module}")


def refuse_java(properties: Properties, key: str, *, do: str, own: tuple[str, ...]) -> None:
    """Raise for a key with a Java class, unless it is one that has its twin here, by the end of its name."""
    if properties.get(key) and not properties[key].endswith(own):
        raise UsageError(f"{key} names Java code, which cannot run here.", do=do)
