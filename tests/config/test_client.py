"""One configuration from every form a person may have, for every client."""

import pickle
import ssl
from importlib import util

import pytest
from confluent_kafka.admin import AdminClient
from kafka.net.manager import KafkaConnectionManager

from tests.config.forms import CREDENTIALS, DEFAULTS, OAUTH, PLAIN, SAME, SCRAM, TOKEN
from tests.stored import compare
from toolkit.config import ClientConfig
from toolkit.errors import UsageError


@pytest.mark.parametrize("name", SAME)
def test_java_and_librdkafka_keys_give_the_same_configuration(name: str) -> None:
    java, librdkafka = ({"bootstrap.servers": "b:9092", **form} for form in SAME[name])
    config = ClientConfig(java)
    assert config.librdkafka() == ClientConfig(librdkafka).librdkafka()
    assert config == ClientConfig(librdkafka)
    assert hash(config) == hash(ClientConfig(librdkafka))


@pytest.mark.parametrize("name", SAME)
def test_a_configuration_can_be_copied_and_pickled(name: str) -> None:
    config = ClientConfig({"bootstrap.servers": "b:9092", **SAME[name][0]})
    assert ClientConfig(config) == ClientConfig(config.librdkafka()) == pickle.loads(pickle.dumps(config)) == config


def test_without_a_keytab_librdkafka_runs_no_kinit() -> None:
    cache = ClientConfig({"bootstrap.servers": "b:9092", **SAME["kerberos with the ticket cache"][0]}).librdkafka()
    assert cache["sasl.kerberos.min.time.before.relogin"] == "0"
    keytab = ClientConfig({"bootstrap.servers": "b:9092", **SAME["kerberos with a keytab"][0]}).librdkafka()
    assert not keytab.keys() & {"sasl.kerberos.min.time.before.relogin", "sasl.kerberos.kinit.cmd"}


def test_bootstrap_servers_alone() -> None:
    config = ClientConfig(" PLAINTEXT://b-1.example.com:9092, [::1]:9093 ")
    assert config.librdkafka() == DEFAULTS | {"bootstrap.servers": "b-1.example.com:9092,[::1]:9093"}
    assert config.bootstrap_servers == ("b-1.example.com:9092", "[::1]:9093")
    assert config != "b-1.example.com:9092"


def test_other_librdkafka_keys_are_passed_through() -> None:
    def on_error(error: object) -> None: ...

    properties = {
        "metadata.broker.list": "b:9092",
        "statistics.interval.ms": 5,
        "debug": "broker",
        "error_cb": on_error,
    }
    expected = DEFAULTS | {"statistics.interval.ms": "5", "debug": "broker", "error_cb": on_error}
    assert ClientConfig(properties).librdkafka() == expected
    assert ClientConfig(properties).masked()["error_cb"] == "(callable)"


def test_what_is_shown_of_a_configuration_is_in_the_order_of_its_keys() -> None:
    shown = ClientConfig(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "me",
            "sasl.password": "secret",
            "client.id": "me",
            "bootstrap.servers": "b:9092",
        }
    ).masked()
    assert list(shown) == sorted(shown)
    assert (shown["client.id"], shown["sasl.password"]) == ("me", "[hidden]")


def test_a_configuration_is_immutable() -> None:
    config = ClientConfig("b:9092")
    config.librdkafka()["client.id"] = "changed"
    assert config.librdkafka() == DEFAULTS
    with pytest.raises(AttributeError, match="does not change"):
        config.bootstrap_servers = ("x:1",)  # type: ignore[misc]
    with pytest.raises(AttributeError, match="does not change"):
        del config._properties


def test_numbers_are_limited_to_librdkafkas_ranges() -> None:
    properties = {
        "bootstrap.servers": "b:9092",
        "request.timeout.ms": "900000",
        "socket.connection.setup.timeout.ms": 5,
    }
    config = ClientConfig(properties | {"default.api.timeout.ms": 90_000})  # which librdkafka does not have
    expected = {"socket.timeout.ms": "300000", "socket.connection.setup.timeout.ms": "1000"}
    assert config.librdkafka() == DEFAULTS | expected
    AdminClient(config.librdkafka() | {"log_level": 0})


def test_kafka_python_keywords() -> None:
    java, _ = SAME["plain over TLS"]
    kwargs = ClientConfig({"bootstrap.servers": "a:1,b:2", "client.id": "me", **java}).kafka_python()
    context = kwargs.pop("ssl_context")
    assert kwargs == {
        "bootstrap_servers": ["a:1", "b:2"],
        "client_id": "me",
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


def test_scram_escapes_a_user_name() -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.password": "s3cr3t"}
    config = ClientConfig({"bootstrap.servers": "b:9092", "sasl.username": "a=b,c", **login})
    assert config.kafka_python()["sasl_plain_username"] == "a=3Db=2Cc"
    assert config.librdkafka()["sasl.username"] == "a=b,c", "librdkafka escapes it itself"


def test_kerberos_names_the_missing_python_package(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ClientConfig({"bootstrap.servers": "b:9092", **SAME["kerberos with a keytab"][0]})
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install gssapi"):
        config.kafka_python()
    monkeypatch.setattr(util, "find_spec", lambda name: object())
    keys = {"keytab": "/etc/a.keytab", "principal": "a@R", "service.name": "kafka"}
    expected = {f"sasl.kerberos.{key}": value for key, value in keys.items()}
    assert config.kafka_python()["sasl_kerberos_name"] == expected


REFUSED: dict[str, dict[str, object]] = {
    "no servers": {"bootstrap.servers": None},
    "empty servers": {"bootstrap.servers": " , "},
    "no port": {"bootstrap.servers": "b"},
    "no such port": {"bootstrap.servers": "b:65536"},
    "one of two": {"bootstrap.servers": "b:9092,c:x"},
    "a password in the address": {"bootstrap.servers": "ann:s3cr3t@b"},
    "protocol": {"security.protocol": "TLS"},
    "mechanism": {"security.protocol": "SASL_SSL", "sasl.mechanism": "NTLM"},
    "no credentials": {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
    "no password": {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ann"},
    "another module": {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f"{SCRAM} required;",
    },
    "delegation token": {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{SCRAM} required username="t" password="s3cr3t" tokenauth="true";',
    },
    "two passwords": {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.password": "another",
        "sasl.jaas.config": f'{PLAIN} required username="ann" password="s3cr3t";',
    },
    "two mechanisms": {"sasl.mechanism": "PLAIN", "sasl.mechanisms": "GSSAPI"},
    "token without endpoint": TOKEN | CREDENTIALS,
    "credentials in the endpoint": TOKEN
    | CREDENTIALS
    | {"sasl.oauthbearer.token.endpoint.url": "https://me:s3cr3t@idp/"},
    "token without client": TOKEN | {"sasl.oauthbearer.token.endpoint.url": "https://idp/"},
    "token endpoint with its own TLS": TOKEN
    | {"sasl.jaas.config": f'{OAUTH} required clientId="me" ssl.truststore.location="/a.jks";'},
    "login handler": TOKEN | {"sasl.login.callback.handler.class": "com.example.Handler"},
    "TLS engine": {"security.protocol": "SSL", "ssl.engine.factory.class": "com.example.Factory"},
    "host name check": {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "http"},
    "no such file": {"security.protocol": "SSL", "ssl.ca.location": "/no/such.pem"},
    "no PEM": {"security.protocol": "SSL", "ssl.truststore.certificates": "s3cr3t"},
    "a number": {"request.timeout.ms": "30s"},
    "indirection": {"config.providers": "file", "security.protocol": "${file:/etc/kafka:protocol}"},
    "misspelt": {"ssl.truststore.locaton": "/a"},
    "underscores": {"security_protocol": "SSL"},
    "a letter too many": {"sasl.passwordd": "s3cr3t"},
}


def test_rejected_configurations_and_their_reasons() -> None:
    lines = list[str]()
    for name, properties in REFUSED.items():
        with pytest.raises(UsageError) as caught:
            ClientConfig({"bootstrap.servers": "b:9092"} | properties)
        assert caught.value.do
        lines.append(f"{name}: {caught.value}")
    assert "s3cr3t" not in "".join(lines)
    compare("refused_configurations.txt", lines)
