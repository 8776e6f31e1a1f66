"""Rejected configurations, and the text of the errors."""

import pytest

from tests.config.forms import CREDENTIALS, OAUTH, PLAIN, SCRAM, TOKEN
from toolkit.config import ClientConfig
from toolkit.errors import UsageError

REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "no servers": ({"bootstrap.servers": None}, "bootstrap.servers is missing"),
    "empty servers": ({"bootstrap.servers": " , "}, "is not host:port"),
    "no port": ({"bootstrap.servers": "b"}, "'b' in bootstrap.servers is not host:port"),
    "no such port": ({"bootstrap.servers": "b:65536"}, "is not host:port"),
    "one of two": ({"bootstrap.servers": "b:9092,c:x"}, "'c:x' in bootstrap.servers"),
    "a password in the address": ({"bootstrap.servers": "ann:s3cr3t@b"}, "'b' in bootstrap.servers"),
    "protocol": ({"security.protocol": "TLS"}, "'TLS'.*PLAINTEXT, SSL"),
    "mechanism": ({"security.protocol": "SASL_SSL", "sasl.mechanism": "NTLM"}, "'NTLM'.*oauth_cb"),
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
        "sasl.password and sasl.jaas.config have different values",
    ),
    "two mechanisms": (
        {"sasl.mechanism": "PLAIN", "sasl.mechanisms": "GSSAPI"},
        "sasl.mechanism and sasl.mechanisms have different values",
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
def test_rejected_configurations_and_their_reasons(name: str) -> None:
    properties, message = REFUSED[name]
    with pytest.raises(UsageError, match=message) as caught:
        ClientConfig({"bootstrap.servers": "b:9092"} | properties)
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.do
