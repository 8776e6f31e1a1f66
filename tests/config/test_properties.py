"""Properties as Java reads them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.config.forms import CREDENTIALS, DEFAULTS, PLAIN, TOKEN
from toolkit.config import ClientConfig
from toolkit.config.properties import parse_jaas, parse_properties
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
        "a.M required " + "/**/ " * 60 + "s3cr3t",  # in no exponential time
    ],
)
def test_jaas_that_kafka_rejects_too(text: str) -> None:
    with pytest.raises(UsageError, match=r"sasl.jaas.config does not parse") as caught:
        parse_jaas(text)
    assert "s3c" not in str(caught.value)


SECRET = st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=30).map(lambda text: f"Zq9{text}")


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@given(SECRET)
def test_no_representation_shows_a_secret(secret: str) -> None:
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
        {"bootstrap.servers": "b:9092", "basic.auth.user.info": secret},  # of a schema registry, beside the rest
    ]
    for form in forms:
        config = ClientConfig(form)
        assert secret in config.librdkafka().values()
        for output in (repr(config), str(config), f"{config}", str(config.masked()), config.scrub(f"no: {secret}!")):
            assert "Zq9" not in output
        assert "Zq9" not in config.scrub(f"no: {secret!r}")
        assert config.scrub("nothing to hide") == "nothing to hide"


@given(SECRET, st.data())
def test_no_error_shows_a_secret(secret: str, data: st.DataObject) -> None:
    jaas = f'{PLAIN} required username="ann" password={quoted(secret)};'
    cut = data.draw(st.integers(0, len(jaas)))
    damaged = jaas[:cut] + data.draw(st.sampled_from(["", '"', "=", ";", "'", " "])) + jaas[cut + 1 :]
    properties = {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    text = "\n".join(f"{key}={value}" for key, value in properties.items()) + f"\nsasl.jaas.config={damaged}"
    for form in (lambda: properties | {"sasl.jaas.config": damaged}, lambda: read(text)):
        error: BaseException | None = None
        try:
            ClientConfig(form())
        except UsageError as caught:  # and nothing else
            error = caught
        while error is not None:  # everything that a traceback would print
            assert "Zq9" not in str(error)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def read(text: str) -> dict[str, object]:
    return dict(parse_properties(text))


def test_longer_secrets_are_masked_first() -> None:
    config = ClientConfig(
        {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
        | {"sasl.username": "ann", "sasl.password": "secret", "ssl.key.password": "secret-longer"}
    )
    assert config.scrub("it was secret-longer, not secret") == "it was [hidden], not [hidden]"


def test_of_the_options_of_kafkas_tools(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=in-file:9092\nclient.id=own\n")
    assert ClientConfig.of("given:9092", None).bootstrap_servers == ClientConfig("given:9092").bootstrap_servers
    assert ClientConfig.of(None, file).bootstrap_servers == ClientConfig("in-file:9092").bootstrap_servers
    both = ClientConfig.of("given:9092", str(file))
    assert (both.bootstrap_servers, both.file) == (ClientConfig("given:9092").bootstrap_servers, str(file))
    with pytest.raises(UsageError, match=r"bootstrap\.servers"):
        ClientConfig.of(None, None)
