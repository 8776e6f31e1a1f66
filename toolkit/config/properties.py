"""Client properties: every known key, Java's files of them, and what TLS and SASL need, in librdkafka's keys."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkit.errors import AuthenticationFailed, UsageError

if TYPE_CHECKING:
    import ssl


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
SECRET_KEY = re.compile(r"password|passphrase|secret|jaas|user\.info|\.pem$|oauthbearer\.config$|keystore\.key$")


def read_properties(path: str) -> dict[str, str]:
    """The properties of a file: UTF-8, else Latin-1 (which is what Java reads)."""
    data = read_bytes(path)
    try:
        return parse_properties(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return parse_properties(data.decode("latin-1"))


def parse_properties(text: str) -> dict[str, str]:
    """Java ``.properties`` text to a dict; the last of equal keys wins (``java.util.Properties.load``).

    Raises UsageError for a malformed unicode escape; it names the key and not the value.
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

    if find_spec(module.partition(".")[0]) is None or find_spec(module) is None:  # of a parent first: it raises without
        raise UsageError(what, do=f"pip install '{package}'" if "[" in package else f"pip install {package or module}")


def refuse_java(properties: Properties, key: str, *, do: str, own: tuple[str, ...]) -> None:
    """Raise for a key with a Java class, unless it is one that has its twin here, by the end of its name."""
    if properties.get(key) and not properties[key].endswith(own):
        raise UsageError(f"{key} names Java code, which cannot run here.", do=do)


CHECK = "ssl.endpoint.identification.algorithm"
JAVA_STORES = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}  # by their first bytes
PROBE = "probe"  # librdkafka's value of ssl.ca.location for the system's certificates
OF_TRUSTSTORE, OF_KEYSTORE = "ssl.truststore.password", "ssl.keystore.password"


def tls(properties: Properties) -> Properties:
    """The canonical keys."""
    do = "Set the certificates as PEM or PKCS#12 files."
    refuse_java(properties, "ssl.engine.factory.class", do=do, own=(".DefaultSslEngineFactory",))
    keys = {key: properties[key] for key in TLS if key in properties}
    trust = properties.get("ssl.truststore.location", keys.pop("ssl.ca.location", None))
    if trust and (trust == PROBE or os.path.isdir(trust) or _is_pem(trust)):
        keys["ssl.ca.location"] = trust
    elif trust:
        _, keys["ssl.ca.pem"] = read_pkcs12(trust, properties, OF_TRUSTSTORE)
    if store := properties.get("ssl.keystore.location"):
        if _is_pem(store):
            keys |= {"ssl.certificate.location": store, "ssl.key.location": store}
        else:
            key, certificates = read_pkcs12(store, properties, OF_KEYSTORE)
            if not key:
                raise UsageError(
                    f"{store} holds no private key.", do="Point ssl.keystore.location to the client's key store."
                )
            keys |= {"ssl.certificate.pem": certificates, "ssl.key.pem": key}
    for key in ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"):
        if key in keys:
            keys[key] = pem_lines(key, keys[key])
    for key in ("ssl.certificate.location", "ssl.key.location", "ssl.crl.location"):
        if key in keys:
            read_bytes(keys[key])
    if CHECK in keys:
        keys[CHECK] = keys[CHECK].lower() or "none"
        if keys[CHECK] not in {"none", "https"}:
            raise UsageError(f"{CHECK} is {keys[CHECK]!r}.", do="Use https, or none.")
    if re.match(r"(TLS|SSL)_", keys.get("ssl.cipher.suites", "")):  # Java's names, unknown to OpenSSL
        del keys["ssl.cipher.suites"]
    return keys


def _is_pem(path: str) -> bool:
    """PEM or PKCS#12, by its bytes: Java's default type "JKS" also opens PKCS#12 files."""
    start = read_bytes(path)[:4]
    if kind := JAVA_STORES.get(start):
        new = re.sub(r"\.\w+$", "", path) + ".p12"
        raise UsageError(
            f"{path} is a {kind} store, which only Java reads.",
            do=f"Convert it once, and set the new file: keytool -importkeystore -srckeystore {shlex.quote(path)} "
            f"-srcstoretype {kind} -destkeystore {shlex.quote(new)} -deststoretype PKCS12",
        )
    return start[:1] != b"\x30"


def read_pkcs12(path: str, properties: Properties, password_key: str) -> tuple[str, str]:
    """Private key (empty if there is none) and certificates of a PKCS#12 store, as PEM."""
    need_package("cryptography", f"{path} is a PKCS#12 store; reading it needs the Python package cryptography.")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    password = properties.get(password_key)
    try:
        store = pkcs12.load_pkcs12(read_bytes(path), password.encode() if password else None)
    except ValueError:
        raise UsageError(
            f"{path} does not open as PKCS#12.", do=f"Check {password_key}, and that the file is PKCS#12 or PEM."
        ) from None
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) if store.key else b""
    entries = [entry for entry in (store.cert, *store.additional_certs) if entry]
    certificates = b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in entries)
    return key.decode(), certificates.decode()


def pem_lines(name: str, text: str) -> str:
    """PEM with the line breaks that OpenSSL needs; in a properties file it is often one line."""
    blocks = re.findall(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", text.replace("\\n", "\n"), re.DOTALL)
    if not blocks:
        raise UsageError(
            f"{name} is not PEM.", do="It starts with -----BEGIN ...----- and ends with -----END ...-----."
        )
    lines: list[str] = []
    for label, body in blocks:
        # a body with headers, such as that of an encrypted key, has its own lines
        wrapped = body.strip().splitlines() if ":" in body else re.findall(".{1,64}", "".join(body.split()))
        lines += [f"-----BEGIN {label}-----", *wrapped, f"-----END {label}-----"]
    return "\n".join(lines) + "\n"


def ssl_context(properties: Properties) -> ssl.SSLContext:
    """An SSL context with the same truststore, key pair and checks as librdkafka."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    verify = properties.get("enable.ssl.certificate.verification", "true") != "false"
    context.check_hostname = verify and properties.get(CHECK) != "none"
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    trust, key = properties.get("ssl.ca.location", PROBE), "ssl.ca"
    try:
        if trust != PROBE:
            context.load_verify_locations(**{"capath" if os.path.isdir(trust) else "cafile": trust})
        if pem := properties.get("ssl.ca.pem"):
            context.load_verify_locations(cadata=pem)
        elif trust == PROBE:
            context.load_default_certs()
        if crl := properties.get("ssl.crl.location"):
            context.load_verify_locations(crl)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        key = "ssl.cipher.suites"
        if properties.get(key):
            context.set_ciphers(properties[key])
        key = "ssl.certificate and ssl.key"
        with _file(properties, "ssl.certificate") as certificate, _file(properties, "ssl.key") as private_key:
            if certificate:
                # a callable: without one, OpenSSL would prompt for the password on the terminal
                password = properties.get("ssl.key.password", "")
                context.load_cert_chain(certificate, private_key, password=lambda: password)
    except (OSError, ValueError) as error:  # SSLError is an OSError; its text has a reason and no content
        reason = getattr(error, "reason", None) or type(error).__name__
        raise UsageError(f"{key} does not load ({reason}).", do="Check the files, and ssl.key.password.") from None
    return context


@contextlib.contextmanager
def _file(properties: Properties, name: str) -> Iterator[str | None]:
    """Path of a certificate or key, which Python's ssl reads from files only: inline PEM is in a private directory."""
    import tempfile

    if not (pem := properties.get(f"{name}.pem")):
        yield properties.get(f"{name}.location")
        return
    with tempfile.TemporaryDirectory(prefix="kafka-txn-") as folder:  # mode 0700
        path = os.path.join(folder, "pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(pem)
        yield path


HANDLERS = (
    ".IAMClientCallbackHandler",
    ".IAMOAuthBearerLoginCallbackHandler",
    ".GcpLoginCallbackHandler",
    ".OAuthBearerLoginCallbackHandler",
    ".OAuthBearerUnsecuredLoginCallbackHandler",
)
CALLBACK = "an oauth_cb that returns (token, expiry in seconds since the epoch)"


def sasl(properties: Properties) -> Properties:
    """The canonical keys."""
    mechanism = properties.get("sasl.mechanisms", "GSSAPI").upper()  # the default of Java and of librdkafka
    if mechanism not in LOGIN_MODULES:
        raise UsageError(
            f"sasl.mechanism is {mechanism!r}, which is not supported.",
            means="Mechanisms other than these are plug-ins of one client.",
            do=f"Use one of {', '.join(LOGIN_MODULES)}; for a cloud's identity service, OAUTHBEARER and {CALLBACK}.",
        )
    for key in ("sasl.client.callback.handler.class", "sasl.login.class", "sasl.login.callback.handler.class"):
        refuse_java(properties, key, do=f"Set the credentials, or with OAUTHBEARER {CALLBACK}.", own=HANDLERS)
    if "sasl.jaas.config" in properties:
        for key, value in _jaas_properties(mechanism, properties["sasl.jaas.config"]).items():
            if properties.setdefault(key, value) != value:
                raise UsageError(f"{key} and sasl.jaas.config have different values.", do="Keep one of them.")
    if mechanism == "AWS_MSK_IAM":
        return _vendor_login("msk", properties)
    complete = {"GSSAPI": _kerberos, "OAUTHBEARER": _oauth}.get(mechanism, _password)
    return {"sasl.mechanisms": mechanism} | complete(properties)


def _password(properties: Properties) -> Properties:
    for key in PASSWORD:
        if not properties.get(key):
            raise UsageError(
                f"{properties['sasl.mechanisms']} needs credentials, and {key} is missing.",
                do="Set sasl.username and sasl.password, or sasl.jaas.config.",
            )
    return {key: properties[key] for key in PASSWORD}


def _kerberos(properties: Properties) -> Properties:
    kerberos = {key: properties[key] for key in KERBEROS if key in properties}
    if "%{" not in kerberos.get("sasl.kerberos.kinit.cmd", "%{"):
        del kerberos["sasl.kerberos.kinit.cmd"]  # Java's key of this name is only the path of kinit
    if not kerberos.keys() & {"sasl.kerberos.keytab", "sasl.kerberos.kinit.cmd"}:
        kerberos["sasl.kerberos.min.time.before.relogin"] = "0"  # the ticket cache: no kinit by librdkafka
    return kerberos


def _oauth(properties: Properties) -> Properties:
    oauth = {key: properties[key] for key in OAUTH if key in properties}
    if "oauth_cb" in oauth:
        return oauth
    servers, handler = properties["bootstrap.servers"], properties.get("sasl.login.callback.handler.class", "")
    by_host = not handler and "sasl.oauthbearer.client.id" not in oauth
    for name, vendor in VENDORS.items():
        if handler.endswith(vendor.handlers) or (by_host and re.search(vendor.hosts, servers)):
            return _vendor_login(name, properties)
    if properties.get("enable.sasl.oauthbearer.unsecure.jwt") == "true":
        return oauth | {"oauth_cb": unsecured_token}
    grant = properties.get("sasl.oauthbearer.grant.type", "client_credentials")
    service = properties.get("sasl.oauthbearer.metadata.authentication.type", "none")
    if (grant, service) != ("client_credentials", "none"):
        raise UsageError(
            "Only librdkafka gets tokens by an assertion or from a cloud's metadata service.", do=f"Set {CALLBACK}."
        )
    for key in ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"):
        if not oauth.get(key):
            raise UsageError(
                f"OAUTHBEARER needs credentials, and {key} is missing.",
                do=f"Set it (in sasl.jaas.config: clientId, clientSecret), or {CALLBACK}.",
            )
    if not re.match(r"https?://[^/@]+(/|$)", oauth.get("sasl.oauthbearer.token.endpoint.url", "")):
        raise UsageError(
            "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url: an http(s) address, without credentials in it.",
            do="Set the token endpoint of the identity provider.",
        )
    return oauth | {"sasl.oauthbearer.method": "oidc"}


def _vendor_login(name: str, properties: Properties) -> Properties:
    """OAUTHBEARER with the tokens of a vendor's own package, which MSK accepts for IAM, too."""
    servers, arguments = properties["bootstrap.servers"], {"vendor": name}
    if name == "azure":
        host = re.search(VENDORS[name].hosts, servers)
        arguments["scope"] = f"https://{host[1]}/.default" if host else ""
    elif name == "msk":
        in_host = re.search(r"\.([a-z]{2}(?:-[a-z]+)+-\d+)\.", servers)  # as Java: of the host, else of the environment
        region = in_host[1] if in_host else os.environ.get("AWS_REGION", os.environ.get("AWS_DEFAULT_REGION"))
        if not region:
            raise UsageError(f"MSK IAM needs the AWS region, which {servers} does not contain.", do="Set AWS_REGION.")
        arguments |= {"region": region} | {key: properties[key] for key in SIGNER if key in properties}
    return {
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": vendor_token,
        "sasl.oauthbearer.config": json.dumps(arguments),
    }


def vendor_token(config: str) -> tuple[str, float]:
    """A token and its expiry by a vendor's own package, with the credentials of this machine; an ``oauth_cb``."""
    arguments = json.loads(config)
    vendor = VENDORS[arguments.pop("vendor")]
    try:
        return vendor.token(**arguments)
    except Exception as error:  # noqa: BLE001 - these packages' have no common class; a missing key is an AttributeError
        raise AuthenticationFailed(
            f"No token for {vendor.service} could be made ({type(error).__name__}).",
            do=f"Check the credentials of this machine: {vendor.check}.",
        ) from None


def _msk_token(*, region: str, **signer: str) -> tuple[str, float]:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    profile, *role = (signer.get(key) for key in SIGNER)
    if profile:
        token, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_profile(region, profile)
    elif role[0]:
        token, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_role_arn(region, *filter(None, role))
    else:
        token, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    return token, expires_ms / 1000


def _google_token() -> tuple[str, float]:
    """An access token in the form of GcpLoginCallbackHandler, which Managed Service for Apache Kafka takes."""
    import google.auth.transport.requests

    credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    credentials.refresh(google.auth.transport.requests.Request())
    expires = credentials.expiry.replace(tzinfo=dt.UTC).timestamp()
    subject = getattr(credentials, "service_account_email", "") or getattr(credentials, "account", "")
    claims = {"exp": expires, "iat": time.time(), "iss": "Google", "scope": "kafka", "sub": subject}
    header = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    return ".".join(map(_base64, (json.dumps(header), json.dumps(claims), credentials.token))), expires


def _azure_token(*, scope: str) -> tuple[str, float]:
    from azure.identity import DefaultAzureCredential

    with DefaultAzureCredential() as credential:
        found = credential.get_token(scope)
    return found.token, found.expires_on


class Vendor(NamedTuple):
    """A service that takes the tokens of its vendor's own package."""

    service: str
    module: str
    package: str
    token: Callable[..., tuple[str, float]]
    hosts: str  # pattern of its brokers, for a configuration with neither client credentials nor a handler
    handlers: tuple[str, ...]  # ends of the names of its Java classes
    check: str  # command that shows the credentials of this machine


VENDORS = {
    "msk": Vendor(
        "MSK IAM",
        "aws_msk_iam_sasl_signer",
        "aws-msk-iam-sasl-signer-python",
        _msk_token,
        r"\.kafka(?:-serverless)?\.[a-z\d-]+\.amazonaws\.com",
        HANDLERS[:2],
        "aws sts get-caller-identity",
    ),
    "google": Vendor(
        "Managed Service for Apache Kafka",
        "google.auth",
        "google-auth[requests]",
        _google_token,
        r"\.managedkafka\.[\w.-]+\.cloud\.goog:",
        HANDLERS[2:3],
        "gcloud auth application-default print-access-token",
    ),
    "azure": Vendor(
        "Azure Event Hubs",
        "azure.identity",
        "azure-identity",
        _azure_token,
        r"([\w-]+\.servicebus\.(?:windows\.net|usgovcloudapi\.net|chinacloudapi\.cn)):",
        (),
        "az account get-access-token",
    ),
}


def _base64(text: str) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def unsecured_token(config: str) -> tuple[str, float]:
    """An unsecured JWT (RFC 7515, A.5), for brokers under test that accept any subject; an ``oauth_cb``."""
    issued = time.time()
    claims = {"sub": _pairs(config.split()).get("principal", ""), "iat": issued, "exp": issued + 3600}
    return f"{_base64(json.dumps({'alg': 'none'}))}.{_base64(json.dumps(claims))}.", issued + 3600


class TokenProvider:
    """A bearer token for kafka-python, of an ``oauth_cb`` or a token endpoint, kept until shortly before it expires.

    It has the methods of kafka-python's ``AbstractTokenProvider``; the module that imports kafka-python registers it
    there as a virtual subclass. `properties`: canonical OAUTHBEARER keys.
    """

    EARLY = 30.0  # seconds before its expiry at which a new token is fetched,
    WINDOW = 0.8  # or this part of its lifetime: before a connection authenticates again (Java's refresh window)

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = properties
        self._token, self._expires, self._renew_at = "", 0.0, 0.0
        self._lock = threading.Lock()

    def token(self) -> str:
        """A valid token; the last one if it is still valid and its source returned no other.

        Raises AuthenticationFailed if there is none.
        """
        with self._lock:
            now = time.time()
            if now >= self._renew_at:
                try:
                    self._token, self._expires = self._fetched()
                except AuthenticationFailed:
                    if now >= self._expires:
                        raise
                    return self._token
                lifetime = self._expires - now
                self._renew_at = now + min(self.WINDOW * lifetime, lifetime - self.EARLY)
            return self._token

    def _fetched(self) -> tuple[str, float]:
        if callback := self._properties.get("oauth_cb"):
            token, expires, *_ = callback(self._properties.get("sasl.oauthbearer.config", ""))
            return token, expires
        return _client_credentials(self._properties)

    def extensions(self) -> dict[str, str]:
        """SASL extensions of the token (KIP-342)."""
        return _pairs(self._properties.get("sasl.oauthbearer.extensions", "").split(","))


def _client_credentials(properties: Mapping[str, Any]) -> tuple[str, float]:
    """A token and its expiry from an OAuth 2 token endpoint (RFC 6749, section 4.4), as librdkafka gets its own.

    One request by the standard library: kafka-python has none, requests-oauthlib writes secret and token to its log,
    and Authlib replaces the cryptography of Databricks runtimes.
    """
    import base64
    import ssl
    import urllib.error
    import urllib.parse
    import urllib.request

    url = properties["sasl.oauthbearer.token.endpoint.url"]
    identity = f"{properties['sasl.oauthbearer.client.id']}:{properties['sasl.oauthbearer.client.secret']}"
    form = {"grant_type": "client_credentials", "scope": properties.get("sasl.oauthbearer.scope")}
    headers = {"Authorization": f"Basic {base64.b64encode(identity.encode()).decode()}", "Accept": "application/json"}
    data = urllib.parse.urlencode({key: value for key, value in form.items() if value}).encode()
    cafile, cadata = properties.get("https.ca.location"), properties.get("https.ca.pem")
    try:
        context = ssl.create_default_context(cafile=cafile, cadata=cadata)
        request = urllib.request.Request(url, data, headers)  # noqa: S310 - http(s) only, checked in `_oauth`
        with urllib.request.urlopen(request, timeout=10, context=context) as response:  # noqa: S310
            answer = json.load(response)
        return str(answer["access_token"]), time.time() + float(answer.get("expires_in", 300))
    except urllib.error.HTTPError as error:
        error.close()
        reason = f"answered HTTP {error.code}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"returned no token ({type(error).__name__})"
    raise AuthenticationFailed(
        f"The token endpoint {url} {reason}.", do="Check the address, the client id and secret, and the scope."
    )


def _pairs(items: Iterable[str]) -> dict[str, str]:
    return {key.strip(): value.strip() for key, _, value in (item.partition("=") for item in items) if key.strip()}


def _jaas_properties(mechanism: str, text: str) -> Properties:
    """The options of a login module as librdkafka's keys."""
    module, options = parse_jaas(text)
    expected, keys = LOGIN_MODULES[mechanism]
    if module.rpartition(".")[2] != expected:
        raise UsageError(
            f"sasl.jaas.config has no {expected}, which {mechanism} needs.",
            do="Set sasl.mechanism to the one of the module.",
        )
    if options.get("tokenauth") == "true":
        raise UsageError(
            "sasl.jaas.config uses a delegation token, which librdkafka cannot send.", do="Use SCRAM itself."
        )
    for name in options:
        if name.startswith("ssl."):
            raise UsageError(
                f"sasl.jaas.config sets {name} for the token endpoint.",
                do="Set its certificates as https.ca.location (PEM).",
            )
        if name.startswith("awsRole") and name not in keys:
            raise UsageError(
                f"The signer of tokens for Amazon MSK has no {name}.",
                do="Configure the role in a profile of ~/.aws/config, and set awsProfileName in sasl.jaas.config.",
            )
    found = {keys[name]: value for name, value in options.items() if name in keys}
    prefix = "extension_"
    extensions = [f"{name.removeprefix(prefix)}={value}" for name, value in options.items() if name.startswith(prefix)]
    if extensions:
        found["sasl.oauthbearer.extensions"] = ",".join(extensions)
    if subject := options.get("unsecuredLoginStringClaim_sub"):
        found |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={subject}"}
    return found


# As java.io.StreamTokenizer reads them. Possessive: a text that does not match takes no exponential time.
_GAP = r"(?:\s+|/\*.*?\*/|/[^\n]*)*+"
_WORD = r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[^\s=;"'/]+)"""
MODULE = re.compile(
    f"{_GAP}{_WORD}{_GAP}(?:required|requisite|sufficient|optional)\\b{_GAP}", re.DOTALL | re.IGNORECASE
)
OPTION = re.compile(f"{_WORD}{_GAP}={_GAP}{_WORD}{_GAP}", re.DOTALL)
END = re.compile(f";{_GAP}", re.DOTALL)


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Parse a ``sasl.jaas.config`` into its login module and options (Kafka's ``JaasConfig``).

    Raises UsageError if it does not parse or has more than one module, without its text, which has secrets.
    """
    module, options = MODULE.match(text), {}
    position = module.end() if module else 0
    while module and (option := OPTION.match(text, position)):
        options[_word(option[1])] = _word(option[2])
        position = option.end()
    if not module or not END.fullmatch(text, position):
        raise UsageError(
            "sasl.jaas.config does not parse.",
            means="It is one login module, a control flag, options as name=value with quotes closed, and a semicolon.",
            do='Write it like: org.apache...PlainLoginModule required username="..." password="...";',
        )
    return _word(module[1]), options


def _word(token: str) -> str:
    """A token without its quotes and escapes."""
    return re.sub(r"\\([0-3]?[0-7]{1,2}|.)", _unescape, token[1:-1], flags=re.DOTALL) if token[0] in "\"'" else token


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    return {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}.get(escape, escape)
