"""A login module as Kafka reads it."""

import pytest

from toolkit.config.properties import parse_jaas
from toolkit.errors import UsageError


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
