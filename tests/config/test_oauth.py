"""Bearer tokens, from everywhere a client may have them."""

import base64
import http.server
import importlib.metadata
import json
import pickle
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth

from tests.config.forms import OAUTH, TOKEN
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
            raise AuthenticationFailed("The token endpoint answered HTTP 503.")
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
    with pytest.raises(AuthenticationFailed, match=r"could be signed \(TypeError\).*aws sts get-caller-identity"):
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
        thread.join(120)


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
