"""Bearer tokens, from everywhere a client may have them."""

import base64
import importlib.metadata
import json
import pickle
import sys
import time
import urllib.parse
from collections.abc import Iterator
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth

from tests.config.forms import OAUTH, TOKEN
from tests.secured import JsonHandler, LocalServer
from toolkit.config import ClientConfig, TokenProvider
from toolkit.errors import AuthenticationFailed, ToolkitError, UsageError


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

    def fetch(config: str) -> tuple[str, float]:
        nonlocal fetched
        fetched += 1
        return f"token-{fetched}", clock.now + 300

    provider = TokenProvider({"oauth_cb": fetch, "sasl.oauthbearer.extensions": "logicalCluster=lkc-1"})
    assert [provider.token(), provider.token()] == ["token-1", "token-1"]
    clock.now += 271
    assert provider.token() == "token-2"
    assert provider.extensions() == {"logicalCluster": "lkc-1"}


def test_a_token_is_renewed_before_a_connection_authenticates_again(clock: Clock) -> None:
    """It does so after 85 to 95% of the token's lifetime; with the old one it would have to do it again at once."""
    tokens = iter(["first", "second"])
    provider = TokenProvider({"oauth_cb": lambda config: (next(tokens), clock.now + 3600)})
    assert provider.token() == "first"
    clock.now += 0.79 * 3600
    assert provider.token() == "first"
    clock.now += 0.02 * 3600
    assert provider.token() == "second"


def test_a_valid_token_outlives_a_failing_token_endpoint(clock: Clock) -> None:
    down = False

    def fetch(config: str) -> tuple[str, float]:
        if down:
            raise AuthenticationFailed("The token endpoint answered HTTP 503.", do="")
        return "token", clock.now + 300

    provider = TokenProvider({"oauth_cb": fetch})
    assert provider.token() == "token"
    down = True
    clock.now += 299
    assert provider.token() == "token"
    clock.now += 2
    with pytest.raises(AuthenticationFailed, match="503"):
        provider.token()


def provider_of(**keys: object) -> Any:
    properties: dict[str, object] = {"bootstrap.servers": "b:9092", **TOKEN, "security.protocol": "SASL_PLAINTEXT"}
    properties |= {key if key == "oauth_cb" else key.replace("_", "."): value for key, value in keys.items()}
    return ClientConfig(properties).kafka_python()["sasl_oauth_token_provider"]


def test_a_callback_serves_every_client() -> None:
    def callback(config: str) -> tuple[str, float]:
        return f"token for {config}", time.time() + 300

    keys = {"oauth_cb": callback, "sasl_oauthbearer_config": "me", "sasl_oauthbearer_extensions": "a=1,b=2"}
    assert provider_of(**keys).token() == "token for me"
    assert provider_of(**keys).extensions() == {"a": "1", "b": "2"}
    properties = {"bootstrap.servers": "b:9092", **TOKEN, "oauth_cb": callback}
    assert ClientConfig(properties).librdkafka()["oauth_cb"] is callback


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


def test_methods_that_only_librdkafka_supports() -> None:
    keys = {"sasl_oauthbearer_grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}
    with pytest.raises(UsageError, match=r"Only librdkafka.*oauth_cb"):
        provider_of(**keys)


BROKERS = {
    "b-1.x.y1.c2.kafka.us-east-1.amazonaws.com:9098,b-2.x.y1.c2.kafka.us-east-1.amazonaws.com:9098": "us-east-1",
    "boot-1a2b.c3.kafka-serverless.ap-southeast-2.amazonaws.com:9098": "ap-southeast-2",
    "b-1.x.y1.c1.kafka.cn-north-1.amazonaws.com.cn:9098": "cn-north-1",
    "b-1-public.x.y1.c1.kafka.us-gov-west-1.amazonaws.com:9198": "us-gov-west-1",
    "kafka.example.com:9098": "eu-west-3",  # of the environment
}
MSK: dict[str, object] = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
IAM = "software.amazon.msk.auth.iam"


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Calls of Amazon's signer, which is not installed here; it returns milliseconds."""
    calls: list[tuple[str, ...]] = []

    def sign(name: str, *arguments: str) -> tuple[str, int]:
        calls.append((name, *arguments))
        return "signed", int(1000 * (time.time() + 900))

    package, module = ModuleType("aws_msk_iam_sasl_signer"), ModuleType("MSKAuthTokenProvider")
    package.__spec__ = ModuleSpec(package.__name__, None)
    for name in ("", "_from_profile", "_from_role_arn"):
        setattr(module, f"generate_auth_token{name}", partial(sign, name))
    package.MSKAuthTokenProvider = module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    return calls


@pytest.mark.parametrize("servers", BROKERS)
def test_msk_iam_signs_for_the_region_of_the_broker(servers: str, signer: list[tuple[str, ...]]) -> None:
    """Java's keys; an operator on MSK could not log in with the application's file."""
    java = MSK | {
        "bootstrap.servers": servers,
        "sasl.jaas.config": f"{IAM}.IAMLoginModule required awsDebugCreds=true;",
        "sasl.client.callback.handler.class": f"{IAM}.IAMClientCallbackHandler",
    }
    config = ClientConfig(java)
    kwargs, keys = config.kafka_python(), config.librdkafka()
    assert (kwargs["sasl_mechanism"], keys["sasl.mechanisms"]) == ("OAUTHBEARER", "OAUTHBEARER")
    assert kwargs["sasl_oauth_token_provider"].token() == "signed"
    token, expires = keys["oauth_cb"](keys["sasl.oauthbearer.config"])
    assert (token, expires) == ("signed", pytest.approx(time.time() + 900, abs=60))
    assert signer == [("", BROKERS[servers])] * 2
    assert pickle.loads(pickle.dumps(config)) == ClientConfig(config.librdkafka()) == config


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ('awsProfileName="ops"', ("_from_profile", "eu-west-3", "ops")),
        ('awsRoleArn="arn:r"', ("_from_role_arn", "eu-west-3", "arn:r")),
        ('awsRoleArn="arn:r" awsRoleSessionName="me"', ("_from_role_arn", "eu-west-3", "arn:r", "me")),
    ],
)
def test_msk_iam_with_a_profile_or_a_role(options: str, call: tuple[str, ...], signer: list[tuple[str, ...]]) -> None:
    handler = f"{IAM}.IAMOAuthBearerLoginCallbackHandler"  # Java's other form
    keys = {"sasl.login.callback.handler.class": handler, "sasl.client.callback.handler.class": handler}
    java = TOKEN | keys | {"bootstrap.servers": "b:9098", "sasl.jaas.config": f"{OAUTH} required {options};"}
    assert ClientConfig(java).kafka_python()["sasl_oauth_token_provider"].token() == "signed"
    assert signer == [call]


def test_msk_iam_that_cannot_sign(signer: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    msk = MSK | {"bootstrap.servers": "b:9098"}
    jaas = f'{IAM}.IAMLoginModule required awsRoleArn="a" awsRoleExternalId="s3cr3t";'
    with pytest.raises(UsageError, match=r"has no awsRoleExternalId.*awsProfileName"):
        ClientConfig(msk | {"sasl.jaas.config": jaas})
    monkeypatch.setattr(sys.modules["aws_msk_iam_sasl_signer"].MSKAuthTokenProvider, "generate_auth_token", None)
    with pytest.raises(AuthenticationFailed, match=r"could be made \(TypeError\).*aws sts get-caller-identity"):
        ClientConfig(msk).kafka_python()["sasl_oauth_token_provider"].token()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install aws-msk-iam-sasl-signer-python"):
        ClientConfig(msk).kafka_python()
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(UsageError, match=r"AWS region, which b:9098 does not contain. Set AWS_REGION"):
        ClientConfig(msk)


def test_amazons_signer_makes_a_token_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = "aws-msk-iam-sasl-signer-python"  # the security modes have one of their own, in the same process
    if not any(each.name == signer for each in importlib.metadata.distributions()):
        pytest.skip(f"{signer} is not installed")
    for name in [each for each in sys.modules if each.startswith("aws_msk_iam_sasl_signer")]:
        monkeypatch.delitem(sys.modules, name)
    for name, value in {"ACCESS_KEY_ID": "AKIAEXAMPLE", "SECRET_ACCESS_KEY": "s3cr3t", "REGION": "us-west-2"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    config = ClientConfig(MSK | {"bootstrap.servers": "b-1.x.y1.c1.kafka.eu-north-1.amazonaws.com:9098"})
    token = config.kafka_python()["sasl_oauth_token_provider"].token()
    url = base64.urlsafe_b64decode(token + "==").decode()
    assert url.startswith("https://kafka.eu-north-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "AKIAEXAMPLE" in url
    assert "s3cr3t" not in url


class Issuer(JsonHandler):
    """The token endpoints of a provider that knows one client, of Google and of a machine in Azure."""

    def do_POST(self) -> None:  # noqa: N802 - of http.server
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = dict(urllib.parse.parse_qsl(body))
        if self.path == "/google":  # RFC 7523; Google's package has signed it with the account's key
            claims = json.loads(base64.urlsafe_b64decode(form["assertion"].split(".")[1] + "=="))
            self.grant("cloud-platform" in claims["scope"], {"access_token": "goog", "expires_in": 600})
            return
        right = "Basic " + base64.b64encode(b"me:s3cr3t").decode()
        known = self.headers["Authorization"] == right and form == {
            "grant_type": "client_credentials",
            "scope": "kafka",
        }
        self.grant(known, {} if self.path == "/empty" else {"access_token": "good", "expires_in": 600})

    def do_GET(self) -> None:  # noqa: N802 - of http.server
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        known = (
            self.headers["X-IDENTITY-HEADER"] == "s3cr3t" and query["resource"] == "https://ns.servicebus.windows.net"
        )
        expires = str(int(time.time()) + 600)
        self.grant(known, {"access_token": "azure", "expires_on": expires, "token_type": "Bearer", "resource": "r"})

    def grant(self, known: bool, answer: dict[str, object]) -> None:
        self.respond(200 if known else 401, answer if known else {"error": "s3cr3t"})


@pytest.fixture
def issuer() -> Iterator[str]:
    with LocalServer(Issuer) as server:
        yield f"http://{server.address}"


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
    ("path", "secret", "message"),
    [("/token", "s3cr3t-wrong", "answered HTTP 401"), ("/empty", "s3cr3t", r"returned no token \(KeyError\)")],
)
def test_failing_client_credentials(issuer: str, path: str, secret: str, message: str) -> None:
    with pytest.raises(AuthenticationFailed, match=message) as caught:
        provider_of(**credentials(issuer + path, secret=secret)).token()
    assert "s3cr3t" not in str(caught.value)


def test_a_missing_token_endpoint() -> None:
    with pytest.raises(ToolkitError, match=r"127.0.0.1:1/token returned no token \(URLError\)"):
        provider_of(**credentials("http://127.0.0.1:1/token")).token()


GOOGLE = "bootstrap.events.eu-west1.managedkafka.shop.cloud.goog:9092"


@pytest.mark.parametrize("handler", [{}, {"sasl.login.callback.handler.class": "com.google.GcpLoginCallbackHandler"}])
def test_google_by_the_key_of_a_service_account(
    handler: dict[str, object], issuer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("google.auth", reason="the extra google is not installed")
    account = {"type": "service_account", "client_email": "ops@shop.example", "token_uri": f"{issuer}/google"}
    (tmp_path / "key.json").write_text(json.dumps(account | {"private_key": private_key()}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    config = ClientConfig(TOKEN | handler | {"bootstrap.servers": "b:9092" if handler else GOOGLE})
    *parts, token = config.kafka_python()["sasl_oauth_token_provider"].token().split(".")
    header, claims, token = (base64.urlsafe_b64decode(part + "==") for part in (*parts, token))
    assert (json.loads(header)["alg"], token) == ("GOOG_OAUTH2_TOKEN", b"goog")
    assert json.loads(claims) | {"iat": 0, "exp": 0} == {
        "exp": 0,
        "iat": 0,
        "iss": "Google",
        "scope": "kafka",
        "sub": "ops@shop.example",
    }
    assert json.loads(claims)["exp"] == pytest.approx(time.time() + 600, abs=60)
    assert pickle.loads(pickle.dumps(config)) == config


def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def test_azure_by_the_identity_of_a_machine(issuer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("azure.identity", reason="the extra azure is not installed")
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{issuer}/azure")
    monkeypatch.setenv("IDENTITY_HEADER", "s3cr3t")
    config = ClientConfig(TOKEN | {"bootstrap.servers": "ns.servicebus.windows.net:9093"})
    assert config.kafka_python()["sasl_oauth_token_provider"].token() == "azure"
    monkeypatch.setenv("IDENTITY_HEADER", "other")
    with pytest.raises(
        AuthenticationFailed, match=r"Azure Event Hubs could be made .*az account get-access-token"
    ) as no:
        config.kafka_python()["sasl_oauth_token_provider"].token()
    assert "s3cr3t" not in str(no.value)
    credentials = ClientConfig(
        TOKEN
        | {"bootstrap.servers": "ns.servicebus.windows.net:9093", "sasl.oauthbearer.client.id": "me"}
        | {"sasl.oauthbearer.client.secret": "x", "sasl.oauthbearer.token.endpoint.url": "https://login.example/token"}
    )
    assert "oauth_cb" not in credentials.librdkafka(), "client credentials of the file win over this machine's"


def test_confluent_cloud_by_client_credentials(issuer: str) -> None:
    """An identity pool of Confluent Cloud is an extension of the token, in the file of Java's applications."""
    options = 'clientId="me" clientSecret="s3cr3t" scope="kafka" extension_logicalCluster="lkc-1" '
    properties = {
        "bootstrap.servers": "pkc-1.eu-west-1.aws.confluent.cloud:9092",
        "sasl.oauthbearer.token.endpoint.url": f"{issuer}/token",
        "sasl.login.callback.handler.class": f"{OAUTH.rpartition('.')[0]}.secured.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f'{OAUTH} required {options} extension_identityPoolId="pool-1";',
    }
    provider = ClientConfig(TOKEN | properties).kafka_python()["sasl_oauth_token_provider"]
    assert (provider.token(), provider.extensions()) == (
        "good",
        {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"},
    )
