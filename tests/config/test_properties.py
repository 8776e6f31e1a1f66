"""Properties as Java reads them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.config.forms import DEFAULTS, PLAIN
from toolkit.config import ClientConfig
from toolkit.config.properties import parse_properties
from toolkit.errors import UsageError

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


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_properties_round_trip(properties: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    text = "\r\n".join(f"  {escaped(key)} \\\n   = {escaped(value)}" for key, value in properties.items())
    assert parse_properties(text) == properties


def test_the_properties_file_of_an_application(tmp_path: Path) -> None:
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


def test_a_file_is_rejected_like_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    with pytest.raises(UsageError, match=r"client.properties cannot be read: No such file"):
        ClientConfig.from_properties(path)
    path.write_text("security.protocol=SSL")
    with pytest.raises(UsageError, match=r"bootstrap.servers is missing"):
        ClientConfig.from_properties(path)
    path.write_text("bootstrap.servers=b:9092\nsecurity.protocl=SSL")
    with pytest.raises(UsageError, match=r"mean 'security.protocol'"):
        ClientConfig.from_properties(path)
