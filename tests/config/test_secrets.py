"""No secret in any representation."""

from hypothesis import given
from hypothesis import strategies as st

from tests.config.forms import CREDENTIALS, PLAIN, TOKEN
from toolkit.config import ClientConfig
from toolkit.config.properties import parse_properties
from toolkit.errors import UsageError

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
