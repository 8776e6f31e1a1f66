"""One configuration from every form a person may have, and never a secret in what is shown."""

import base64
import contextlib
import http.server
import json
import pickle
import shlex
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth

from toolkit.config import ClientConfig, TokenProvider, parse_jaas, parse_properties
from toolkit.errors import AuthenticationFailed, ToolkitError, UsageError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
DEFAULTS = {"bootstrap.servers": "b:9092", "client.id": "kafka-txn-toolkit", "security.protocol": "PLAINTEXT"}
HAS_CRYPTOGRAPHY = util.find_spec("cryptography") is not None
needs_cryptography = pytest.mark.skipif(not HAS_CRYPTOGRAPHY, reason="the package cryptography is not installed")
needs_keytool = pytest.mark.skipif(not shutil.which("keytool"), reason="Java's keytool is not on PATH")
unhurried = settings(deadline=None)  # what comes out is tested, not how fast this machine is

# ---- the same configuration in Java's and in librdkafka's words

SAME: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "plain over TLS": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN} required username="ann" password="s3;cr=t";',
            "ssl.endpoint.identification.algorithm": "",
            "request.timeout.ms": "15000",
        },
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "s3;cr=t",
            "ssl.endpoint.identification.algorithm": "none",
            "socket.timeout.ms": 15000,
        },
    ),
    "scram, shaded as Databricks does": (
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f"kafkashaded.{SCRAM} required username='ann' password='it\"s';",
        },
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "scram-sha-512",
            "sasl.username": "ann",
            "sasl.password": 'it"s',
        },
    ),
    "kerberos with a keytab": (
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
            "sasl.jaas.config": f'{KERBEROS} required useKeyTab=true keyTab="/etc/a.keytab" principal="a@R" '
            'serviceName="kafka";',
        },
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.keytab": "/etc/a.keytab",
            "sasl.kerberos.principal": "a@R",
            "sasl.kerberos.service.name": "kafka",
        },
    ),
    "kerberos with the ticket cache": (
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": f"{KERBEROS} required useTicketCache=true;",
        },
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.min.time.before.relogin": 0,
        },
    ),
    "client credentials": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
            "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.secured."
            "OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": f'{OAUTH} required clientId="me" clientSecret="s3cr3t" scope="kafka" '
            'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2";',
        },
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.secret": "s3cr3t",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
            "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        },
    ),
    "an unsecured token, for a test broker": (
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{OAUTH} required unsecuredLoginStringClaim_sub="alice";',
        },
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": "principal=alice",
        },
    ),
    "what the protocol does not use is not read": (
        {
            "security.protocol": "PLAINTEXT",
            "ssl.truststore.location": "/nowhere.jks",
            "sasl.jaas.config": "not even JAAS",
        },
        {},
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_java_and_librdkafka_say_the_same(name: str) -> None:
    java, librdkafka = ({"bootstrap.servers": "b:9092", **form} for form in SAME[name])
    config = ClientConfig(java)
    assert config.librdkafka() == ClientConfig(librdkafka).librdkafka()
    assert config == ClientConfig(librdkafka)
    assert hash(config) == hash(ClientConfig(librdkafka))


@pytest.mark.parametrize("name", SAME)
def test_a_configuration_survives_copying(name: str) -> None:
    config = ClientConfig({"bootstrap.servers": "b:9092", **SAME[name][0]})
    assert ClientConfig(config) == ClientConfig(config.librdkafka()) == pickle.loads(pickle.dumps(config)) == config


def test_without_a_keytab_librdkafka_runs_no_kinit() -> None:
    cache = ClientConfig({"bootstrap.servers": "b:9092", **SAME["kerberos with the ticket cache"][0]}).librdkafka()
    assert cache["sasl.kerberos.min.time.before.relogin"] == "0"
    keytab = ClientConfig({"bootstrap.servers": "b:9092", **SAME["kerberos with a keytab"][0]}).librdkafka()
    assert not keytab.keys() & {"sasl.kerberos.min.time.before.relogin", "sasl.kerberos.kinit.cmd"}


def test_servers_alone() -> None:
    config = ClientConfig(" PLAINTEXT://b-1.example.com:9092, [::1]:9093 ")
    assert config.librdkafka() == DEFAULTS | {"bootstrap.servers": "b-1.example.com:9092,[::1]:9093"}
    assert config.bootstrap_servers == ("b-1.example.com:9092", "[::1]:9093")
    assert config != "b-1.example.com:9092"


def test_other_librdkafka_keys_pass_untouched() -> None:
    def on_error(error: object) -> None: ...

    given = {"metadata.broker.list": "b:9092", "statistics.interval.ms": 5, "debug": "broker", "error_cb": on_error}
    expected = DEFAULTS | {"statistics.interval.ms": "5", "debug": "broker", "error_cb": on_error}
    assert ClientConfig(given).librdkafka() == expected
    assert ClientConfig(given).masked()["error_cb"] == "(callable)"


def test_a_configuration_does_not_change() -> None:
    config = ClientConfig("b:9092")
    config.librdkafka()["client.id"] = "changed"
    assert config.librdkafka() == DEFAULTS
    with pytest.raises(AttributeError, match="does not change"):
        config.bootstrap_servers = ("x:1",)  # type: ignore[misc]
    with pytest.raises(AttributeError, match="does not change"):
        del config._properties


def test_numbers_are_held_within_what_librdkafka_accepts() -> None:
    given = {"bootstrap.servers": "b:9092", "request.timeout.ms": "900000", "socket.connection.setup.timeout.ms": 5}
    config = ClientConfig(given | {"default.api.timeout.ms": 90_000})
    assert config.api_timeout == 90
    assert ClientConfig("b:9092").api_timeout == 60
    expected = {"socket.timeout.ms": "300000", "socket.connection.setup.timeout.ms": "1000"}
    assert config.librdkafka() == DEFAULTS | expected  # default.api.timeout.ms is not librdkafka's
    AdminClient(config.librdkafka() | {"log_level": 0})


def test_importing_it_stays_cheap() -> None:
    loaded = "import sys, toolkit.config; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.split()
    assert not set(modules) & {"ssl", "kafka", "confluent_kafka", "urllib.request", "cryptography", "pyarrow"}


# ---- kafka-python's keywords


def test_kafka_python_keywords() -> None:
    java, _ = SAME["plain over TLS"]
    kwargs = ClientConfig({"bootstrap.servers": "a:1,b:2", "client.id": "me", **java}).kafka_python()
    context = kwargs.pop("ssl_context")
    assert kwargs == {
        "bootstrap_servers": ["a:1", "b:2"],
        "client_id": "me",
        "receive_message_max_bytes": 100_000_000,
        "request_timeout_ms": 15_000,
        "sasl_mechanism": "PLAIN",
        "sasl_plain_password": "s3;cr=t",
        "sasl_plain_username": "ann",
        "security_protocol": "SASL_SSL",
    }
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)


@pytest.mark.parametrize("name", [name for name in SAME if "kerberos" not in name])
def test_kafka_python_knows_every_keyword(name: str) -> None:
    kwargs = ClientConfig({"bootstrap.servers": "b:9092", **SAME[name][0]}).kafka_python()
    assert kwargs.keys() <= KafkaConnectionManager.DEFAULT_CONFIG.keys()


def test_kerberos_says_what_python_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ClientConfig({"bootstrap.servers": "b:9092", **SAME["kerberos with a keytab"][0]})
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install gssapi"):
        config.kafka_python()
    monkeypatch.setattr(util, "find_spec", lambda name: object())
    assert config.kafka_python()["sasl_kerberos_service_name"] == "kafka"


# ---- what is refused, and in which words

TOKEN: dict[str, object] = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
CREDENTIALS: dict[str, object] = {"sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "s3cr3t"}
REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "no servers": ({"bootstrap.servers": None}, "bootstrap.servers is missing"),
    "empty servers": ({"bootstrap.servers": " , "}, "is not host:port"),
    "no port": ({"bootstrap.servers": "b"}, "'b' in bootstrap.servers is not host:port"),
    "no such port": ({"bootstrap.servers": "b:65536"}, "is not host:port"),
    "one of two": ({"bootstrap.servers": "b:9092,c:x"}, "'c:x' in bootstrap.servers"),
    "a password in the address": ({"bootstrap.servers": "ann:s3cr3t@b"}, "'b' in bootstrap.servers"),
    "protocol": ({"security.protocol": "TLS"}, "'TLS'.*PLAINTEXT, SSL"),
    "mechanism": ({"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM.*oauth_cb"),
    "no credentials": ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.username is missing"),
    "no password": (
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ann"},
        "sasl.password is missing",
    ),
    "another module": (
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{SCRAM} required;"},
        "no PlainLoginModule",
    ),
    "delegation token": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{SCRAM} required username="t" password="s3cr3t" tokenauth="true";',
        },
        "delegation token",
    ),
    "two passwords": (
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.password": "another",
            "sasl.jaas.config": f'{PLAIN} required username="ann" password="s3cr3t";',
        },
        "sasl.password and sasl.jaas.config say different things",
    ),
    "two mechanisms": (
        {"sasl.mechanism": "PLAIN", "sasl.mechanisms": "GSSAPI"},
        "sasl.mechanism and sasl.mechanisms say different things",
    ),
    "token without endpoint": (TOKEN | CREDENTIALS, "token.endpoint.url"),
    "credentials in the endpoint": (
        TOKEN | CREDENTIALS | {"sasl.oauthbearer.token.endpoint.url": "https://me:s3cr3t@idp/"},
        "without credentials in it",
    ),
    "token without client": (
        TOKEN | {"sasl.oauthbearer.token.endpoint.url": "https://idp/"},
        "sasl.oauthbearer.client.id is missing",
    ),
    "token endpoint with its own TLS": (
        TOKEN | {"sasl.jaas.config": f'{OAUTH} required clientId="me" ssl.truststore.location="/a.jks";'},
        "https.ca.location",
    ),
    "login handler": (
        TOKEN | {"sasl.login.callback.handler.class": "com.example.Handler"},
        "sasl.login.callback.handler.class names Java code",
    ),
    "TLS engine": (
        {"security.protocol": "SSL", "ssl.engine.factory.class": "com.example.Factory"},
        "ssl.engine.factory.class names Java code",
    ),
    "host name check": (
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "http"},
        "identification.algorithm is 'http'",
    ),
    "no such file": (
        {"security.protocol": "SSL", "ssl.ca.location": "/no/such.pem"},
        "/no/such.pem cannot be read: No such file",
    ),
    "no PEM": ({"security.protocol": "SSL", "ssl.truststore.certificates": "s3cr3t"}, "ssl.ca.pem is not PEM"),
    "a number": ({"request.timeout.ms": "30s"}, "socket.timeout.ms is '30s'"),
    "indirection": (
        {"config.providers": "file", "security.protocol": "${file:/etc/kafka:protocol}"},
        "security.protocol takes its value from a Java config provider",
    ),
    "misspelt": ({"ssl.truststore.locaton": "/a"}, "'ssl.truststore.locaton'.*mean 'ssl.truststore.location'"),
    "underscores": ({"security_protocol": "SSL"}, "mean 'security.protocol'"),
    "a letter too many": ({"sasl.passwordd": "s3cr3t"}, "mean 'sasl.password'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_and_why(name: str) -> None:
    given, says = REFUSED[name]
    with pytest.raises(UsageError, match=says) as caught:
        ClientConfig({"bootstrap.servers": "b:9092"} | given)
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.do


# ---- client.properties

JAVA_PROPERTIES = r"""
# comment \
! also = one
   # indented
a=1
b : 2
c 3
e\ f=key with space
g\=h=i=j:k
l
m=
n=one\
   two \
 # not a comment
o=trail  
p=\u00e9\t\n\q\\x
q==eq
r:\ lead
s=a\\
t=b
dup=1
dup=2
u=\ud83d\ude00
v = last\
"""  # noqa: W291 - a blank at the end is part of a value


def test_properties_as_java_reads_them() -> None:
    """Expected values are what ``java.util.Properties`` of Java 17 made of this text."""
    assert parse_properties(JAVA_PROPERTIES) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "e f": "key with space",
        "g=h": "i=j:k",
        "l": "",
        "m": "",
        "n": "onetwo # not a comment",
        "o": "trail  ",
        "p": "é\t\nq\\x",
        "q": "=eq",
        "r": " lead",
        "s": "a\\",
        "t": "b",
        "dup": "2",
        "u": "\N{GRINNING FACE}",
        "v": "last",
    }


def test_a_malformed_escape_names_the_key_alone() -> None:
    with pytest.raises(UsageError, match=r"value of sasl.password has a malformed") as caught:
        parse_properties(r"sasl.password=s3cr3t\u12")
    assert "s3cr3t" not in str(caught.value)


@unhurried
@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_properties_come_back(properties: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    text = "\r\n".join(f"  {escaped(key)} \\\n   = {escaped(value)}" for key, value in properties.items())
    assert parse_properties(text) == properties


def test_an_applications_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "bootstrap.servers=b:9092\n"
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} required \\\n  username="ann" \\\n  password="s3cr3t";\n'
        "key.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
        "acks=all\ngroup.id=orders\nretry.backoff.ms=0\nconnections.max.idle.ms=-1\n"
        "admin.ssl.truststore.location=/a.jks\nproducer.security.protocol=SSL\nschema.registry.ssl.truststore.location=/a.jks\n"
        "ssl.protocol=TLSv1.3\nclient.id=orders-7\n"
    )
    expected = DEFAULTS | {
        "client.id": "orders-7",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "s3cr3t",
    }
    assert ClientConfig.from_properties(path).librdkafka() == expected
    elsewhere = ClientConfig.from_properties(path, bootstrap_servers="c:9093")
    assert elsewhere.librdkafka() == expected | {"bootstrap.servers": "c:9093"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_file_in_either_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text("client.id=é\nmetadata.broker.list=b:9092", encoding=encoding)
    assert ClientConfig.from_properties(path).librdkafka() == DEFAULTS | {"client.id": "é"}


def test_a_file_is_refused_like_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    with pytest.raises(UsageError, match=r"client.properties cannot be read: No such file"):
        ClientConfig.from_properties(path)
    path.write_text("security.protocol=SSL")
    with pytest.raises(UsageError, match=r"bootstrap.servers is missing"):
        ClientConfig.from_properties(path)
    path.write_text("bootstrap.servers=b:9092\nsecurity.protocl=SSL")
    with pytest.raises(UsageError, match=r"mean 'security.protocol'"):
        ClientConfig.from_properties(path)


# ---- sasl.jaas.config


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a.M required;", {}),
        ('a.M required username="ann" password="a;b=c";', {"username": "ann", "password": "a;b=c"}),
        ("a.M REQUIRED username='ann' password='it\"s';", {"username": "ann", "password": 'it"s'}),
        (r'a.M required username="a\"b" password="x\\y\tz\101\q";', {"username": 'a"b', "password": "x\\y\tzAq"}),
        ("a.M required username=ann password=secret-1 ;", {"username": "ann", "password": "secret-1"}),
        ('a.M required // hi\n a="u" /* x\n y */ b="p" ;', {"a": "u", "b": "p"}),
        ('a.M required / rest ignored\n a="u";', {"a": "u"}),
        (r'a.M required a="\7\77\377\400";', {"a": "\7?\xff 0"}),
        ('a.M required a="é€" b=é€;', {"a": "é€", "b": "é€"}),
        ('a.M required a="1" a="2";', {"a": "2"}),
        ('a.M required a="";', {"a": ""}),
    ],
)
def test_jaas_as_kafka_reads_it(text: str, options: dict[str, str]) -> None:
    """Expected values are what ``JaasContext`` of Kafka 4.3.1 made of these."""
    assert parse_jaas(text) == ("a.M", options)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.M",
        "a.M required",
        "a.M sometimes;",
        'a.M username="s3cr3t";',
        'a.M required password="s3cr3t"',
        'a.M required password "s3cr3t";',
        'a.M required password="s3cr3t;',
        'a.M required password="s3c\nr3t";',
        'a.M required password="s3cr3t"; b.N required;',
        "a.M required = = =;",
    ],
)
def test_jaas_that_kafka_refuses_too(text: str) -> None:
    with pytest.raises(UsageError, match=r"sasl.jaas.config does not parse") as caught:
        parse_jaas(text)
    assert "s3c" not in str(caught.value)


# ---- secrets

SECRET = st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=30).map(lambda text: f"Zq9{text}")


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@unhurried
@given(SECRET)
def test_no_secret_is_ever_shown(secret: str) -> None:
    login: dict[str, object] = {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL"}
    forms: list[dict[str, object]] = [
        login | {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": secret},
        login
        | {
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN} required username="ann" password={quoted(secret)};',
        },
        login
        | TOKEN
        | CREDENTIALS
        | {"sasl.oauthbearer.token.endpoint.url": "https://idp/", "sasl.oauthbearer.client.secret": secret},
        {"bootstrap.servers": "b:9092", "security.protocol": "SSL", "ssl.key.password": secret},
    ]
    for form in forms:
        config = ClientConfig(form)
        assert secret in config.librdkafka().values()
        for shown in (repr(config), str(config), f"{config}", str(config.masked()), config.scrub(f"no: {secret}!")):
            assert "Zq9" not in shown
        assert "Zq9" not in config.scrub(f"no: {secret!r}")
        assert config.scrub("nothing to hide") == "nothing to hide"


@unhurried
@given(SECRET, st.data())
def test_no_secret_is_shown_by_an_error(secret: str, data: st.DataObject) -> None:
    jaas = f'{PLAIN} required username="ann" password={quoted(secret)};'
    cut = data.draw(st.integers(0, len(jaas)))
    damaged = jaas[:cut] + data.draw(st.sampled_from(["", '"', "=", ";", "'", " "])) + jaas[cut + 1 :]
    given = {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    text = "\n".join(f"{key}={value}" for key, value in given.items()) + f"\nsasl.jaas.config={damaged}"
    for form in (lambda: given | {"sasl.jaas.config": damaged}, lambda: read(text)):
        error: BaseException | None = None
        try:
            ClientConfig(form())
        except UsageError as caught:  # and nothing else
            error = caught
        while error is not None:  # whatever a traceback would print
            assert "Zq9" not in str(error)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def read(text: str) -> dict[str, object]:
    return dict(parse_properties(text))


def test_longer_secrets_are_scrubbed_first() -> None:
    config = ClientConfig(
        {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
        | {"sasl.username": "ann", "sasl.password": "secret", "ssl.key.password": "secret-longer"}
    )
    assert config.scrub("it was secret-longer, not secret") == "it was [hidden], not [hidden]"


# ---- TLS, with certificates made here


class Certificates:
    """A certificate authority and what it signed, made with the openssl command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = self.make("ca", "-x509", "-days", "2")
        self.server = self.make("server", *self.signed(), "-addext", "subjectAltName=DNS:broker.example.com")
        self.client = self.make("client", *self.signed())
        self.run("rsa", "-aes128", "-passout", "pass:s3cr3t", "-in", "client.key", "-out", "client.locked.key")

    def make(self, name: str, *options: str) -> Path:
        key = ["-newkey", "rsa:2048", "-noenc", "-keyout", f"{name}.key"]
        self.run("req", *key, "-out", f"{name}.crt", "-subj", f"/CN={name}", *options)
        return self.folder / f"{name}.crt"

    @staticmethod
    def signed() -> list[str]:
        return ["-x509", "-days", "2", "-CA", "ca.crt", "-CAkey", "ca.key"]

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def pkcs12(self, name: str, *, password: str) -> Path:
        pair = ["-in", f"{name}.crt", "-inkey", f"{name}.key", "-certfile", "ca.crt"]
        self.run("pkcs12", "-export", *pair, "-out", f"{name}.p12", "-passout", f"pass:{password}")
        return self.folder / f"{name}.p12"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if not shutil.which("openssl"):
        pytest.skip("the openssl command is not on PATH")
    return Certificates(tmp_path_factory.mktemp("certificates"))


def tls(**keys: object) -> ClientConfig:
    given = {key.replace("_", "."): str(value) for key, value in keys.items()}
    return ClientConfig({"bootstrap.servers": "b:9092", "security.protocol": "SSL"} | given)


def shake_hands(config: ClientConfig, certificates: Certificates, *, host: str = "broker.example.com") -> str:
    """Both sides of a handshake in memory; the common name that the server saw of the client."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.maximum_version = ssl.TLSVersion.TLSv1_2  # 1.3 checks the client only after its handshake
    server_side.load_cert_chain(certificates.server, certificates.key("server"))
    server_side.load_verify_locations(certificates.ca)
    server_side.verify_mode = ssl.CERT_OPTIONAL
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = config.kafka_python()["ssl_context"].wrap_bio(back, there, server_hostname=host)
    server = server_side.wrap_bio(there, back, server_side=True)
    for _ in range(5):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    seen: dict[str, Any] = server.getpeercert() or {}
    return str(dict(pair for ((pair),) in seen["subject"])["commonName"]) if seen else ""


def test_trust_and_host_name(certificates: Certificates) -> None:
    trusting = tls(ssl_ca_location=certificates.ca)
    assert trusting == tls(ssl_truststore_location=certificates.ca, ssl_truststore_type="PEM")
    assert shake_hands(trusting, certificates) == ""
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(trusting, certificates, host="10.0.0.1.example.com")
    unchecked = tls(ssl_ca_location=certificates.ca, ssl_endpoint_identification_algorithm="")
    assert shake_hands(unchecked, certificates, host="other.example.com") == ""
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate"):
        shake_hands(tls(ssl_endpoint_identification_algorithm=""), certificates)
    credulous = tls(enable_ssl_certificate_verification="false")
    assert shake_hands(credulous, certificates, host="other.example.com") == ""


def key_pairs(certificates: Certificates) -> dict[str, ClientConfig]:
    certificate, key = certificates.client.read_text(), certificates.key("client").read_text()
    both = certificates.folder / "both.pem"
    both.write_text(key + certificate)
    ca = certificates.ca
    return {
        "files": tls(
            ssl_ca_location=ca, ssl_certificate_location=certificates.client, ssl_key_location=key_file(key, ca)
        ),
        "locked": tls(
            ssl_ca_location=ca,
            ssl_certificate_location=certificates.client,
            ssl_key_location=certificates.folder / "client.locked.key",
            ssl_key_password="s3cr3t",
        ),
        "java file": tls(ssl_truststore_location=ca, ssl_keystore_location=both, ssl_keystore_type="PEM"),
        "java inline, on one line": tls(
            ssl_truststore_certificates=ca.read_text().replace("\n", " "),
            ssl_keystore_certificate_chain=certificate.replace("\n", " "),
            ssl_keystore_key=key.replace("\n", ""),
        ),
        "librdkafka inline": tls(ssl_ca_pem=ca.read_text(), ssl_certificate_pem=certificate, ssl_key_pem=key),
    }


def key_file(key: str, beside: Path) -> Path:
    path = beside.parent / "plain.key"
    path.write_text(key)
    return path


@pytest.mark.parametrize("form", ["files", "locked", "java file", "java inline, on one line", "librdkafka inline"])
def test_the_client_shows_its_certificate(certificates: Certificates, form: str) -> None:
    config = key_pairs(certificates)[form]
    assert shake_hands(config, certificates) == "client"
    AdminClient(config.librdkafka() | {"log_level": 0})  # librdkafka loads the pair here, and raises if it cannot
    assert "PRIVATE" not in repr(config)
    body = certificates.key("client").read_text().splitlines()[1]
    if "inline" in form:
        assert body not in config.scrub(f"bad line: {body}")


def test_inline_keys_leave_no_file(certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = key_pairs(certificates)["librdkafka inline"]
    seen: list[tuple[int, int]] = []
    load = ssl.SSLContext.load_cert_chain

    def spy(self: ssl.SSLContext, certfile: str, keyfile: str, password: Any) -> None:
        seen.append((Path(keyfile).stat().st_mode & 0o777, Path(keyfile).parent.stat().st_mode & 0o777))
        load(self, certfile, keyfile, password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    config.kafka_python()
    assert seen == [(0o600, 0o700)]
    assert not list(tmp_path.iterdir())


def test_a_wrong_key_password_is_said_and_not_asked_for(certificates: Certificates) -> None:
    locked = certificates.folder / "client.locked.key"
    for keys in ({}, {"ssl_key_password": "s3cr3t-wrong"}):
        config = tls(ssl_certificate_location=certificates.client, ssl_key_location=locked, **keys)
        with pytest.raises(UsageError, match=r"ssl.certificate and ssl.key does not load") as caught:
            config.kafka_python()
        assert "s3cr3t" not in str(caught.value)


def test_a_broken_trust_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(UsageError, match=r"ssl.ca does not load"):
        tls(ssl_ca_location=tmp_path / "ca.pem").kafka_python()


def test_java_cipher_names_are_left_to_java() -> None:
    assert "ssl.cipher.suites" not in tls(ssl_cipher_suites="TLS_AES_256_GCM_SHA384").librdkafka()
    assert tls(ssl_cipher_suites="ECDHE+AESGCM").librdkafka()["ssl.cipher.suites"] == "ECDHE+AESGCM"


# ---- Java's stores


@needs_cryptography
def test_a_pkcs12_key_store(certificates: Certificates) -> None:
    store = certificates.pkcs12("client", password="s3cr3t")
    config = tls(ssl_truststore_location=certificates.ca, ssl_keystore_location=store, ssl_keystore_password="s3cr3t")
    assert shake_hands(config, certificates) == "client"
    AdminClient(config.librdkafka() | {"log_level": 0})
    assert pickle.loads(pickle.dumps(config)) == config
    assert "PRIVATE" not in repr(config)


@needs_cryptography
def test_a_pkcs12_store_that_does_not_open(certificates: Certificates, tmp_path: Path) -> None:
    store = certificates.pkcs12("client", password="right")
    with pytest.raises(UsageError, match=r"does not open as PKCS#12. Check ssl.keystore.password") as caught:
        tls(ssl_keystore_location=store, ssl_keystore_password="s3cr3t")
    assert "s3cr3t" not in str(caught.value)
    (tmp_path / "ca.der").write_bytes(b"\x30\x82 no store")
    with pytest.raises(UsageError, match=r"Check ssl.truststore.password"):
        tls(ssl_truststore_location=tmp_path / "ca.der")


def test_a_pkcs12_store_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trust.p12").write_bytes(b"\x30\x82")
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"trust.p12 is a PKCS#12 store.*pip install cryptography"):
        tls(ssl_truststore_location=tmp_path / "trust.p12")


@needs_keytool
@needs_cryptography
def test_java_stores_by_keytool(certificates: Certificates) -> None:
    """A JKS trust store is refused with the command that converts it, and that command is right."""
    jks = certificates.folder / "trust store.jks"
    importing = ["-importcert", "-noprompt", "-alias", "ca", "-file", str(certificates.ca), "-storetype", "JKS"]
    keytool("keytool", *importing, "-keystore", str(jks), "-storepass", "changeit")
    with pytest.raises(UsageError, match="is a JKS store") as caught:
        tls(ssl_truststore_location=jks)
    command = shlex.split(caught.value.do.removeprefix("Convert it once: "))
    keytool(*command, "-srcstorepass", "changeit", "-deststorepass", "changeit")
    trusting = tls(
        ssl_truststore_location=command[command.index("-destkeystore") + 1], ssl_truststore_password="changeit"
    )
    assert shake_hands(trusting, certificates) == ""
    AdminClient(trusting.librdkafka() | {"log_level": 0})
    with pytest.raises(UsageError, match="holds no private key"):
        tls(ssl_keystore_location=jks.with_suffix(".p12"), ssl_keystore_password="changeit")


def keytool(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


# ---- tokens


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", lambda: clock.now)
    return clock


def test_a_token_is_kept_until_shortly_before_it_expires(clock: Clock) -> None:
    fetched = 0

    def fetch() -> tuple[str, float]:
        nonlocal fetched
        fetched += 1
        return f"token-{fetched}", clock.now + 300

    provider = TokenProvider(fetch, {"logicalCluster": "lkc-1"})
    assert [provider.token(), provider.token()] == ["token-1", "token-1"]
    clock.now += 271
    assert provider.token() == "token-2"
    assert provider.extensions() == {"logicalCluster": "lkc-1"}


def provider_of(**keys: object) -> Any:
    given: dict[str, object] = {"bootstrap.servers": "b:9092", **TOKEN, "security.protocol": "SASL_PLAINTEXT"}
    given |= {key if key == "oauth_cb" else key.replace("_", "."): value for key, value in keys.items()}
    return ClientConfig(given).kafka_python()["sasl_oauth_token_provider"]


def test_a_callback_serves_every_client() -> None:
    def callback(config: str) -> tuple[str, float]:
        return f"token for {config}", time.time() + 300

    keys = {"oauth_cb": callback, "sasl_oauthbearer_config": "me", "sasl_oauthbearer_extensions": "a=1,b=2"}
    assert provider_of(**keys).token() == "token for me"
    assert provider_of(**keys).extensions() == {"a": "1", "b": "2"}
    given = {"bootstrap.servers": "b:9092", **TOKEN, "oauth_cb": callback}
    assert ClientConfig(given).librdkafka()["oauth_cb"] is callback


def test_an_unsecured_token() -> None:
    keys = {"enable_sasl_oauthbearer_unsecure_jwt": True, "sasl_oauthbearer_config": "principal=alice"}
    header, claims, signature = provider_of(**keys).token().split(".")
    assert [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (header,)] == [{"alg": "none"}]
    decoded = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert decoded["sub"] == "alice"
    assert decoded["exp"] > time.time()
    assert signature == ""


def test_kafka_python_takes_the_provider_once_registered() -> None:
    AbstractTokenProvider.register(TokenProvider)
    keys = {"oauth_cb": lambda config: ("good", time.time() + 300), "sasl_oauthbearer_extensions": "a=1,b=2"}
    mechanism = SaslMechanismOAuth(sasl_oauth_token_provider=provider_of(**keys))
    assert mechanism.auth_bytes() == b"n,,\x01auth=Bearer good\x01a=1\x01b=2\x01\x01"  # RFC 7628


def test_what_only_librdkafka_can_get() -> None:
    keys = {"sasl_oauthbearer_grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}
    with pytest.raises(UsageError, match=r"librdkafka alone.*oauth_cb"):
        provider_of(**keys)


class Issuer(http.server.BaseHTTPRequestHandler):
    """A token endpoint that knows one client."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = dict(urllib.parse.parse_qsl(body))
        right = "Basic " + base64.b64encode(b"me:s3cr3t").decode()
        known = self.headers["Authorization"] == right and form == {
            "grant_type": "client_credentials",
            "scope": "kafka",
        }
        answer: dict[str, object] = {"access_token": "good", "expires_in": 600} if known else {"error": "s3cr3t"}
        if self.path == "/empty":
            answer = {}
        data = json.dumps(answer).encode()
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def issuer() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Issuer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def credentials(url: str, *, secret: str = "s3cr3t") -> dict[str, object]:
    return {
        "sasl_oauthbearer_client_id": "me",
        "sasl_oauthbearer_client_secret": secret,
        "sasl_oauthbearer_scope": "kafka",
        "sasl_oauthbearer_token_endpoint_url": url,
    }


def test_client_credentials(issuer: str) -> None:
    assert provider_of(**credentials(f"{issuer}/token")).token() == "good"


@pytest.mark.parametrize(
    ("path", "secret", "says"),
    [("/token", "s3cr3t-wrong", "answered HTTP 401"), ("/empty", "s3cr3t", r"gave no token \(KeyError\)")],
)
def test_client_credentials_that_fail(issuer: str, path: str, secret: str, says: str) -> None:
    with pytest.raises(AuthenticationFailed, match=says) as caught:
        provider_of(**credentials(issuer + path, secret=secret)).token()
    assert "s3cr3t" not in str(caught.value)


def test_no_token_endpoint() -> None:
    with pytest.raises(ToolkitError, match=r"127.0.0.1:1/token gave no token \(URLError\)"):
        provider_of(**credentials("http://127.0.0.1:1/token")).token()
