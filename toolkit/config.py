"""One client configuration for every client, in librdkafka's keys, with its secrets masked.

A person passes what they already have: ``"host:port"``, a mapping of librdkafka or Java keys, or the
``client.properties`` of their application. All become the same canonical form, and every client is served from it.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from toolkit.errors import AuthenticationFailed, UsageError

if TYPE_CHECKING:
    import ssl

__all__ = ["ClientConfig", "TokenProvider", "parse_jaas", "parse_properties"]

Properties = dict[str, Any]  # text values; callables (oauth_cb, error_cb, ...) stay as they are

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER")
HIDDEN = "[hidden]"

# Other names of a canonical key: Java's, and librdkafka's own aliases.
RENAMED = {
    "metadata.broker.list": "bootstrap.servers",
    "request.timeout.ms": "socket.timeout.ms",  # librdkafka has that name too, for the acks of a produce request
    "sasl.mechanism": "sasl.mechanisms",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}

# Canonical keys that go to librdkafka as they are.
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
# Read here, then gone: each becomes some of the keys above, or says that this configuration needs Java.
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

# Whole numbers and the range librdkafka accepts; default.api.timeout.ms is Java's, for a call with its retries.
NUMBERS = {
    "default.api.timeout.ms": (1, 2**31 - 1),
    "receive.message.max.bytes": (1_000, 2**31 - 1),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "socket.connection.setup.timeout.ms": (1_000, 2**31 - 1),
    "socket.timeout.ms": (10, 300_000),
}
# What an application's file says about connecting; its other keys are the application's business.
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
KAFKA_PYTHON: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "client.dns.lookup": ("client_dns_lookup", str),
    "client.id": ("client_id", str),
    "receive.message.max.bytes": ("receive_message_max_bytes", int),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", int),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", int),
    "sasl.kerberos.service.name": ("sasl_kerberos_service_name", str),
    "sasl.mechanisms": ("sasl_mechanism", str),
    "sasl.password": ("sasl_plain_password", str),
    "sasl.username": ("sasl_plain_username", str),
    "security.protocol": ("security_protocol", str),
    "socket.connection.setup.timeout.ms": ("socket_connection_setup_timeout_ms", int),
    "socket.timeout.ms": ("request_timeout_ms", int),
}
SECRET_KEY = re.compile(r"password|passphrase|secret|jaas|\.pem$|oauthbearer\.config$|keystore\.key$")


class ClientConfig:
    """How to reach a cluster, for every client.

    Parameters
    ----------
    source
        ``"host:port[,host:port]"``, a mapping of librdkafka or Java client keys, or another ``ClientConfig``.
        Keys that mean nothing here go to librdkafka untouched. Values are text, numbers or booleans;
        callables (``oauth_cb``, ``error_cb``) are kept as they are.

    Raises
    ------
    UsageError
        For a missing or malformed ``bootstrap.servers``, an unknown protocol or mechanism, a mechanism without
        its credentials, a key that looks like a misspelt security key, a store that cannot be read, or a part
        of a Java configuration that only Java code can do. It names keys and files, never a secret.

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

    __slots__ = ("_properties",)
    _properties: Properties

    def __init__(self, source: str | Mapping[str, object] | ClientConfig) -> None:
        if isinstance(source, ClientConfig):
            properties = dict(source._properties)
        else:
            properties = _canonical({"bootstrap.servers": source} if isinstance(source, str) else source)
        object.__setattr__(self, "_properties", properties)

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str], *, bootstrap_servers: str | None = None) -> ClientConfig:
        """Read a Java ``client.properties`` file, the one the application or ``--command-config`` uses.

        Parameters
        ----------
        path
            The file; UTF-8, else Latin-1 (which is what Java reads).
        bootstrap_servers
            ``"host:port[,host:port]"`` instead of, or missing from, the file.

        Raises
        ------
        UsageError
            If the file cannot be read, and as for the constructor. Keys for serializers, acks, groups and the
            like are ignored: they are the application's.
        """
        given: dict[str, object] = dict(parse_properties(_read_text(os.fspath(path))))
        if bootstrap_servers is not None:
            given.pop("metadata.broker.list", None)
            given["bootstrap.servers"] = bootstrap_servers
        _refuse_misspelt(given)
        config = cls.__new__(cls)
        kept = {key: value for key, value in given.items() if key in FILE_KEYS}
        object.__setattr__(config, "_properties", _canonical(kept))
        return config

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        """Each ``host:port`` to start from."""
        return tuple(self._properties["bootstrap.servers"].split(","))

    @property
    def api_timeout(self) -> float:
        """Seconds one call may take with its retries: ``default.api.timeout.ms``, or Java's default of 60 s."""
        return int(self._properties.get("default.api.timeout.ms", 60_000)) / 1000

    def librdkafka(self) -> dict[str, Any]:
        """The configuration for confluent-kafka; a new dict, with the secrets in it."""
        return {key: value for key, value in self._properties.items() if key != "default.api.timeout.ms"}

    def kafka_python(self) -> dict[str, Any]:
        """Keyword arguments for kafka-python's connection manager; a new dict, with the secrets in it.

        ``ssl_context`` is built here. ``sasl_oauth_token_provider`` is a :class:`TokenProvider`, to be registered
        with kafka-python's abstract class by the module that imports kafka-python.

        Raises
        ------
        UsageError
            If a certificate or key does not load, or this mechanism needs what Python lacks.
        """
        given = self._properties
        kwargs: dict[str, Any] = {
            "bootstrap_servers": list(self.bootstrap_servers),
            # kafka-python's own 1 MB is less than a large cluster's answer; this is librdkafka's default
            "receive_message_max_bytes": 100_000_000,
        }
        for key, (name, convert) in KAFKA_PYTHON.items():
            if key in given:
                kwargs[name] = convert(given[key])
        if given["security.protocol"].endswith("SSL"):
            kwargs["ssl_context"] = _ssl_context(given)
        if given.get("sasl.mechanisms") == "OAUTHBEARER":
            kwargs["sasl_oauth_token_provider"] = TokenProvider.of(given)
        if given.get("sasl.mechanisms") == "GSSAPI":
            _need("gssapi", "Kerberos (GSSAPI) needs the Python package gssapi.")
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

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a ClientConfig does not change; build another one ({name})")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a ClientConfig does not change; build another one ({name})")

    def __reduce__(self) -> tuple[type[ClientConfig], tuple[Properties]]:
        return ClientConfig, (dict(self._properties),)


def _secrets(properties: Properties) -> Iterator[str]:
    """Every text that must not be shown: the values, the lines of keys, and both as ``repr`` would print them."""
    for key, value in properties.items():
        if SECRET_KEY.search(key) and isinstance(value, str):
            lines = [line for line in value.splitlines() if len(line) >= 16 and not line.startswith("-----")]
            for text in (value, *(lines if key.endswith(".pem") else ())):
                yield from {text, repr(text)[1:-1]} - {""}


# ---- to the canonical form


def _canonical(given: Mapping[str, object]) -> Properties:
    """Librdkafka or Java keys to librdkafka keys."""
    _refuse_misspelt(given)
    properties = _renamed(given)
    _refuse_indirection(properties)
    protocol = str(properties.get("security.protocol", "PLAINTEXT")).upper()
    if protocol not in PROTOCOLS:
        raise UsageError(
            f"security.protocol is {protocol!r}, which Kafka does not have.", do=f"Use one of {', '.join(PROTOCOLS)}."
        )
    canonical: Properties = {"client.id": "kafka-txn-toolkit"}
    canonical |= {key: value for key, value in properties.items() if key not in KNOWN}
    canonical |= {"bootstrap.servers": _servers(properties.get("bootstrap.servers")), "security.protocol": protocol}
    if protocol.endswith("SSL"):
        canonical |= _tls(properties)
    if protocol.startswith("SASL"):
        canonical |= _sasl(properties)
    return canonical | _numbers(properties)


def _renamed(given: Mapping[str, object]) -> Properties:
    """Canonical key names and text values; the same thing said twice must be the same."""
    properties: Properties = {}
    for name, value in given.items():
        key = RENAMED.get(name, name)
        if value is None:
            continue
        if not callable(value):
            value = str(value).lower() if isinstance(value, bool) else str(value)
            value = value if SECRET_KEY.search(key) else value.strip()
        if properties.setdefault(key, value) != value:
            names = sorted({other for other in given if RENAMED.get(other, other) == key})
            raise UsageError(f"{' and '.join(names)} say different things.", do="Keep one of them.")
    return properties


def _refuse_misspelt(given: Mapping[str, object]) -> None:
    for key in given:
        if key in KNOWN:
            continue
        close = difflib.get_close_matches(key, KNOWN, n=1, cutoff=0.85)
        if close and not key.endswith("." + close[0]):  # "producer.security.protocol" is no misspelling
            raise UsageError(
                f"There is no client key {key!r}.",
                means="Left alone, it would be ignored and the connection made without it.",
                do=f"Did you mean {close[0]!r}?",
            )


def _refuse_indirection(properties: Properties) -> None:
    """Values that Java would fetch from somewhere else (KIP-421)."""
    for key, value in properties.items():
        if "config.providers" in properties and isinstance(value, str) and re.search(r"\$\{.*\}", value):
            raise UsageError(
                f"{key} takes its value from a Java config provider, which cannot run here.",
                do="Give the value itself.",
            )


def _servers(value: object) -> str:
    if not value:
        raise UsageError("bootstrap.servers is missing.", do="Give one broker or more, as host:port[,host:port].")
    servers = [re.sub(r"^\w+://", "", entry.strip()) for entry in str(value).split(",") if entry.strip()]
    for server in servers or [""]:
        match = re.fullmatch(r"(\[[0-9A-Fa-f:.%\w-]+\]|[\w.-]+):(\d{1,5})", server)
        if not match or not 1 <= int(match[2]) <= 65535:
            shown = server.rpartition("@")[2]  # never what stands before it: someone may have put a password there
            raise UsageError(
                f"{shown!r} in bootstrap.servers is not host:port.", do="Write it like broker-1.example.com:9092."
            )
    return ",".join(servers)


def _numbers(properties: Properties) -> Properties:
    """Whole numbers, held within what librdkafka accepts."""
    held: Properties = {}
    for key, (low, high) in NUMBERS.items():
        if key in properties:
            if not re.fullmatch(r"\d{1,10}", properties[key]):
                raise UsageError(f"{key} is {properties[key]!r}.", do="Give a whole number.")
            held[key] = str(min(max(int(properties[key]), low), high))
    return held


# ---- TLS


def _tls(properties: Properties) -> Properties:
    """Trust, key pair and checks."""
    engine = properties.get("ssl.engine.factory.class", "")
    if engine and not engine.endswith(".DefaultSslEngineFactory"):
        _refuse_java("ssl.engine.factory.class", "Give the certificates as PEM or PKCS#12 files.")
    tls = {key: properties[key] for key in TLS_KEYS if key in properties}
    tls |= _trust(properties) | _key_pair(properties)
    for key in ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"):
        if key in tls:
            tls[key] = _pem_lines(key, tls[key])
    for key in ("ssl.certificate.location", "ssl.key.location", "ssl.crl.location"):
        if key in tls:
            _read_bytes(tls[key])
    check = tls.get("ssl.endpoint.identification.algorithm")
    if check is not None:
        if check.lower() not in {"", "none", "https"}:
            raise UsageError(f"ssl.endpoint.identification.algorithm is {check!r}.", do="Use https, or none.")
        tls["ssl.endpoint.identification.algorithm"] = check.lower() or "none"
    if re.match(r"(TLS|SSL)_", tls.get("ssl.cipher.suites", "")):  # Java's names, which OpenSSL does not know
        del tls["ssl.cipher.suites"]
    return tls


def _trust(properties: Properties) -> Properties:
    name = "ssl.truststore.location" if "ssl.truststore.location" in properties else "ssl.ca.location"
    path = properties.get(name)
    if not path or path == "probe":  # librdkafka's word for the system's certificates
        return {}
    if os.path.isdir(path) or _store_type(path) == "PEM":
        return {"ssl.ca.location": path}
    _, certificates = _read_pkcs12(path, properties.get("ssl.truststore.password"), name)
    return {"ssl.ca.pem": certificates}


def _key_pair(properties: Properties) -> Properties:
    path = properties.get("ssl.keystore.location")
    if not path:
        return {}
    if _store_type(path) == "PEM":
        return {"ssl.certificate.location": path, "ssl.key.location": path}
    key, certificates = _read_pkcs12(path, properties.get("ssl.keystore.password"), "ssl.keystore.location")
    if not key:
        raise UsageError(f"{path} holds no private key.", do="Point ssl.keystore.location to the client's key store.")
    return {"ssl.certificate.pem": certificates, "ssl.key.pem": key}


def _store_type(path: str) -> str:
    """PEM or PKCS12, by the bytes: Java's own default type "JKS" opens PKCS#12 files too."""
    start = _read_bytes(path)
    if start[:4] in {b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"}:
        new = re.sub(r"\.\w+$", "", path) + ".p12"
        kind = "JKS" if start[0] == 0xFE else "JCEKS"
        raise UsageError(
            f"{path} is a {kind} store, which only Java reads.",
            do=f"Convert it once: keytool -importkeystore -srckeystore {shlex.quote(path)} -srcstoretype {kind} "
            f"-destkeystore {shlex.quote(new)} -deststoretype PKCS12",
        )
    return "PKCS12" if start[:1] == b"\x30" else "PEM"


def _read_pkcs12(path: str, password: str | None, name: str) -> tuple[str, str]:
    """Private key (empty if there is none) and certificates of a PKCS#12 store, as PEM."""
    _need("cryptography", f"{path} is a PKCS#12 store; reading it needs the Python package cryptography.")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    try:
        store = pkcs12.load_pkcs12(_read_bytes(path), password.encode() if password else None)
    except ValueError:
        password_key = name.replace(".location", ".password")
        raise UsageError(
            f"{path} does not open as PKCS#12.", do=f"Check {password_key}, and that the file is PKCS#12 or PEM."
        ) from None
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) if store.key else b""
    entries = [*([store.cert] if store.cert else []), *store.additional_certs]
    certificates = b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in entries)
    return key.decode(), certificates.decode()


def _pem_lines(name: str, text: str) -> str:
    """PEM with its lines as OpenSSL wants them; in a properties file it often stands on one line."""
    text = text.replace("\\n", "\n")
    blocks = re.findall(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", text, re.DOTALL)
    if not blocks:
        raise UsageError(
            f"{name} is not PEM.", do="It starts with -----BEGIN ...----- and ends with -----END ...-----."
        )
    lines: list[str] = []
    for label, body in blocks:
        packed = "".join(body.split())
        wrapped = body.strip().splitlines() if ":" in body else [packed[i : i + 64] for i in range(0, len(packed), 64)]
        lines += [f"-----BEGIN {label}-----", *wrapped, f"-----END {label}-----"]
    return "\n".join(lines) + "\n"


def _ssl_context(tls: Properties) -> ssl.SSLContext:
    """The same trust, key pair and checks as librdkafka, for Python's ssl."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    verify = tls.get("enable.ssl.certificate.verification", "true") != "false"
    context.check_hostname = verify and tls.get("ssl.endpoint.identification.algorithm") != "none"
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    key = "ssl.ca"
    try:
        _load_trust(context, tls)
        key = "ssl.cipher.suites"
        if tls.get(key):
            context.set_ciphers(tls[key])
        key = "ssl.certificate and ssl.key"
        _load_key_pair(context, tls)
    except (OSError, ValueError) as error:  # SSLError is an OSError; its text names a reason, no content
        reason = getattr(error, "reason", None) or type(error).__name__
        raise UsageError(f"{key} does not load ({reason}).", do="Check the files, and ssl.key.password.") from None
    return context


def _load_trust(context: ssl.SSLContext, tls: Properties) -> None:
    import ssl

    location, pem = tls.get("ssl.ca.location"), tls.get("ssl.ca.pem")
    if location and location != "probe":
        folder = os.path.isdir(location)
        context.load_verify_locations(cafile=None if folder else location, capath=location if folder else None)
    if pem:
        context.load_verify_locations(cadata=pem)
    if not pem and (not location or location == "probe"):
        context.load_default_certs()
    if tls.get("ssl.crl.location"):
        context.load_verify_locations(tls["ssl.crl.location"])
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_key_pair(context: ssl.SSLContext, tls: Properties) -> None:
    # Python's ssl reads a key pair from files only: inline PEM lives in a private directory while it loads.
    with contextlib.ExitStack() as stack:
        paths: dict[str, str | None] = {}
        for part in ("certificate", "key"):
            paths[part] = tls.get(f"ssl.{part}.location")
            if pem := tls.get(f"ssl.{part}.pem"):
                paths[part] = stack.enter_context(_private_file(pem))
        if paths["certificate"]:
            # a callable, as without one OpenSSL would ask for the password on the terminal
            password = tls.get("ssl.key.password", "")
            context.load_cert_chain(paths["certificate"], paths["key"], password=lambda: password)


@contextlib.contextmanager
def _private_file(text: str) -> Iterator[str]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="kafka-txn-") as folder:  # mode 0700
        path = os.path.join(folder, "pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(text)
        yield path


# ---- SASL


def _sasl(properties: Properties) -> Properties:
    """Mechanism and its credentials, from plain keys or from ``sasl.jaas.config``."""
    mechanism = properties.get("sasl.mechanisms", "GSSAPI").upper()  # the default of Java and of librdkafka
    if mechanism not in MECHANISMS:
        raise UsageError(
            f"sasl.mechanism is {mechanism!r}, which is not supported.",
            means="Mechanisms beyond Kafka's own are plug-ins of one client.",
            do=f"Use one of {', '.join(MECHANISMS)}; a cloud's identity service goes with OAUTHBEARER and an oauth_cb.",
        )
    handler = properties.get("sasl.login.callback.handler.class", "")
    java = [key for key in ("sasl.client.callback.handler.class", "sasl.login.class") if properties.get(key)]
    if handler and not re.search(r"\.OAuthBearer(Unsecured)?LoginCallbackHandler$", handler):
        java.append("sasl.login.callback.handler.class")
    if java:
        _refuse_java(java[0], "Give the credentials themselves, or with OAUTHBEARER an oauth_cb.")
    if "sasl.jaas.config" in properties:
        for key, value in _from_jaas(mechanism, properties["sasl.jaas.config"]).items():
            if properties.setdefault(key, value) != value:
                raise UsageError(f"{key} and sasl.jaas.config say different things.", do="Keep one of them.")
    complete = {"GSSAPI": _kerberos, "OAUTHBEARER": _oauth}.get(mechanism, _password)
    return {"sasl.mechanisms": mechanism} | complete(properties)


def _password(properties: Properties) -> Properties:
    for key in PASSWORD_KEYS:
        if not properties.get(key):
            raise UsageError(
                f"{properties.get('sasl.mechanisms', 'SASL')} needs credentials, and {key} is missing.",
                do="Give sasl.username and sasl.password, or sasl.jaas.config.",
            )
    return {key: properties[key] for key in PASSWORD_KEYS}


def _kerberos(properties: Properties) -> Properties:
    kerberos = {key: properties[key] for key in KERBEROS_KEYS if key in properties}
    if "%{" not in kerberos.get("sasl.kerberos.kinit.cmd", "%{"):
        del kerberos["sasl.kerberos.kinit.cmd"]  # Java's key of that name is only the path of kinit
    if not kerberos.keys() & {"sasl.kerberos.keytab", "sasl.kerberos.kinit.cmd"}:
        kerberos["sasl.kerberos.min.time.before.relogin"] = "0"  # the ticket cache: no kinit by librdkafka
    return kerberos


def _oauth(properties: Properties) -> Properties:
    oauth = {key: properties[key] for key in OAUTH_KEYS if key in properties}
    if "oauth_cb" in oauth or oauth.get("enable.sasl.oauthbearer.unsecure.jwt") == "true":
        return oauth
    oauth["sasl.oauthbearer.method"] = "oidc"
    if _only_librdkafka(oauth):
        return oauth
    for key in ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"):
        if not oauth.get(key):
            raise UsageError(
                f"OAUTHBEARER needs credentials, and {key} is missing.",
                do="Give it (in sasl.jaas.config: clientId, clientSecret), or an oauth_cb "
                "that returns (token, expiry in seconds since the epoch).",
            )
    if not re.match(r"https?://[^/@]+(/|$)", oauth.get("sasl.oauthbearer.token.endpoint.url", "")):
        raise UsageError(
            "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url: an http(s) address, without credentials in it.",
            do="Give the token endpoint of the identity provider.",
        )
    return oauth


def _only_librdkafka(oauth: Mapping[str, str]) -> bool:
    """Ways to a token that librdkafka has built in: a signed assertion, and a cloud's metadata service."""
    return (
        oauth.get("sasl.oauthbearer.grant.type", "client_credentials") != "client_credentials"
        or oauth.get("sasl.oauthbearer.metadata.authentication.type", "none") != "none"
    )


def _from_jaas(mechanism: str, jaas: str) -> Properties:
    """The options of a login module as librdkafka keys."""
    module, options = parse_jaas(jaas)
    expected = {"PLAIN": "Plain", "GSSAPI": "Krb5", "OAUTHBEARER": "OAuthBearer"}.get(
        mechanism, "Scram"
    ) + "LoginModule"
    if module.rpartition(".")[2] != expected:
        raise UsageError(
            f"sasl.jaas.config has no {expected}, which {mechanism} needs.",
            do="Let sasl.mechanism and the module agree.",
        )
    if options.get("tokenauth") == "true":
        raise UsageError(
            "sasl.jaas.config uses a delegation token, which librdkafka cannot send.", do="Use SCRAM itself."
        )
    if any(name.startswith("ssl.") for name in options):
        raise UsageError(
            "sasl.jaas.config sets TLS for the token endpoint.", do="Give its certificates as https.ca.location (PEM)."
        )
    names = {
        "PlainLoginModule": {"username": "sasl.username", "password": "sasl.password"},
        "ScramLoginModule": {"username": "sasl.username", "password": "sasl.password"},
        "Krb5LoginModule": {
            "principal": "sasl.kerberos.principal",
            "keyTab": "sasl.kerberos.keytab",
            "serviceName": "sasl.kerberos.service.name",
        },
        "OAuthBearerLoginModule": {
            "clientId": "sasl.oauthbearer.client.id",
            "clientSecret": "sasl.oauthbearer.client.secret",
            "scope": "sasl.oauthbearer.scope",
        },
    }[expected]
    found = {names[name]: value for name, value in options.items() if name in names}
    extensions = [f"{name[10:]}={value}" for name, value in options.items() if name.startswith("extension_")]
    if extensions:
        found["sasl.oauthbearer.extensions"] = ",".join(extensions)
    if subject := options.get("unsecuredLoginStringClaim_sub"):
        found |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={subject}"}
    return found


class TokenProvider:
    """A bearer token for kafka-python, kept until shortly before it expires.

    It has the methods of kafka-python's ``AbstractTokenProvider``; the module that imports kafka-python registers it
    there as a virtual subclass.

    Parameters
    ----------
    fetch
        Returns a token and when it expires, in seconds since the epoch.
    extensions
        SASL extensions (KIP-342).
    """

    EARLY = 30.0  # seconds before its expiry that a token is fetched anew

    def __init__(self, fetch: Callable[[], tuple[str, float]], extensions: Mapping[str, str] | None = None) -> None:
        self._fetch = fetch
        self._extensions = dict(extensions or {})
        self._token, self._expires = "", 0.0
        self._lock = threading.Lock()

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> TokenProvider:
        """The provider for canonical OAUTHBEARER keys: an ``oauth_cb``, an unsecured token, or a token endpoint."""
        extensions = _pairs(properties.get("sasl.oauthbearer.extensions", "").split(","))
        if callback := properties.get("oauth_cb"):
            return cls(lambda: tuple(callback(properties.get("sasl.oauthbearer.config", "")))[:2], extensions)
        if properties.get("enable.sasl.oauthbearer.unsecure.jwt") == "true":
            return cls(lambda: _unsecured_token(properties), extensions)
        if _only_librdkafka(properties):
            raise UsageError(
                "An assertion, or a cloud's metadata service, gives tokens to librdkafka alone.",
                do="Give an oauth_cb that returns (token, expiry in seconds since the epoch): every client uses it.",
            )
        return cls(lambda: _client_credentials(properties), extensions)

    def token(self) -> str:
        """A token that is still good.

        Raises
        ------
        AuthenticationFailed
            If the token endpoint gave none.
        """
        with self._lock:
            if time.time() > self._expires - self.EARLY:
                self._token, self._expires = self._fetch()
            return self._token

    def extensions(self) -> dict[str, str]:
        """SASL extensions to send with the token."""
        return dict(self._extensions)


def _client_credentials(properties: Mapping[str, Any]) -> tuple[str, float]:
    """A token and its expiry from an OAuth 2 token endpoint (RFC 6749, section 4.4)."""
    import base64
    import json
    import ssl
    import urllib.error
    import urllib.parse
    import urllib.request

    url = properties["sasl.oauthbearer.token.endpoint.url"]
    identity = f"{properties['sasl.oauthbearer.client.id']}:{properties['sasl.oauthbearer.client.secret']}"
    form = {"grant_type": "client_credentials"}
    if scope := properties.get("sasl.oauthbearer.scope"):
        form["scope"] = scope
    request = urllib.request.Request(  # noqa: S310 - http(s) only, checked when the configuration was built
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(identity.encode()).decode(),
            "Accept": "application/json",
        },
    )
    try:
        context = ssl.create_default_context(
            cafile=properties.get("https.ca.location"), cadata=properties.get("https.ca.pem")
        )
        with urllib.request.urlopen(request, timeout=10, context=context) as response:  # noqa: S310
            answer = json.load(response)
        return str(answer["access_token"]), time.time() + float(answer.get("expires_in", 300))
    except urllib.error.HTTPError as error:
        error.close()
        reason = f"answered HTTP {error.code}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"gave no token ({type(error).__name__})"
    raise AuthenticationFailed(
        f"The token endpoint {url} {reason}.", do="Check the address, the client id and secret, and the scope."
    )


def _unsecured_token(properties: Mapping[str, Any]) -> tuple[str, float]:
    """An unsecured JWT (RFC 7515, A.5), for brokers under test that accept any subject."""
    import base64
    import json

    subject = _pairs(properties.get("sasl.oauthbearer.config", "").split()).get("principal", "")
    issued = time.time()
    parts = ({"alg": "none"}, {"sub": subject, "iat": issued, "exp": issued + 3600})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join((*encoded, "")), issued + 3600


def _pairs(items: Iterable[str]) -> dict[str, str]:
    return {key.strip(): value.strip() for key, _, value in (item.partition("=") for item in items) if key.strip()}


# ---- Java's text formats


def parse_properties(text: str) -> dict[str, str]:
    """Java ``.properties`` text to a dict; the last of equal keys wins (``java.util.Properties.load``).

    Raises
    ------
    UsageError
        For a malformed unicode escape; it names the key and not the value.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        match = re.match(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
        if match:
            key = _unescape(match[1], "a key")
            properties[key] = _unescape(match[2], key)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks, continued lines joined."""
    pending = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        pending += line[:-1] if backslashes % 2 else line
        if backslashes % 2 == 0:
            yield pending
            pending = ""
    if pending:
        yield pending


def _unescape(text: str, name: str) -> str:
    def character(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] != "u":
            return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(escape, escape)
        if len(escape) != 5:
            raise UsageError(f"The value of {name} has a malformed \\u escape.", do="Write \\u and four hex digits.")
        return chr(int(escape[1:], 16))

    unescaped = re.sub(r"\\(u[0-9A-Fa-f]{4}|.|$)", character, text, flags=re.DOTALL)
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # Java's escapes are UTF-16 units


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """A ``sasl.jaas.config`` to its login module and options (Kafka's ``JaasConfig``).

    Raises
    ------
    UsageError
        If it does not parse or names more than one module; the text, which holds secrets, is never repeated.
    """
    tokens = list(_jaas_tokens(text))
    words = [(kind, word) for kind, word in tokens if kind != ";"]
    if len(words) < 2 or tokens[-1][0] != ";" or len(words) != len(tokens) - 1:
        _refuse_jaas("it is not one login module ended by a semicolon")
    if words[1][1].lower() not in {"required", "requisite", "sufficient", "optional"}:
        _refuse_jaas("no control flag (required) follows the module")
    rest = words[2:]
    if len(rest) % 3 or any(
        rest[i][0] != "=" or "=" in (rest[i - 1][0], rest[i + 1][0]) for i in range(1, len(rest), 3)
    ):
        _refuse_jaas("an option is not name=value")
    return words[0][1], {rest[i][1]: rest[i + 2][1] for i in range(0, len(rest), 3)}


JAAS_TOKEN = re.compile(
    r"""\s+|/\*.*?\*/|/[^\n]*"""
    r"""|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'|(?P<mark>[=;])|(?P<word>[^\s=;"'/]+)""",
    re.DOTALL,
)


def _jaas_tokens(text: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of each token, as ``java.io.StreamTokenizer`` reads quotes and escapes; kind is =, ; or word."""
    position = 0
    while position < len(text):
        match = JAAS_TOKEN.match(text, position)
        if not match:
            _refuse_jaas("a quote is not closed")
        position = match.end()
        if match["mark"]:
            yield match["mark"], match["mark"]
        elif match["word"]:
            yield "word", match["word"]
        elif match.lastgroup:
            yield "word", re.sub(r"\\([0-3]?[0-7]{1,2}|.)", _jaas_escape, match[match.lastgroup], flags=re.DOTALL)


def _jaas_escape(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    return {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}.get(escape, escape)


def _refuse_jaas(why: str) -> NoReturn:
    raise UsageError(
        f"sasl.jaas.config does not parse: {why}.",
        do='Write it like: org.apache...PlainLoginModule required username="..." password="...";',
    )


def _refuse_java(key: str, do: str) -> NoReturn:
    raise UsageError(f"{key} names Java code, which cannot run here.", do=do)


# ---- files and packages


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", do="Check the path and its permissions."
        ) from error


def _read_text(path: str) -> str:
    data = _read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _need(package: str, what: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise UsageError(what, do=f"pip install {package}")
