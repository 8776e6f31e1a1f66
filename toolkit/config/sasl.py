"""SASL: mechanism, credentials and bearer tokens, from plain keys or ``sasl.jaas.config``."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from toolkit.config.properties import KERBEROS, LOGIN_MODULES, OAUTH, PASSWORD, SIGNER, Properties, refuse_java
from toolkit.errors import AuthenticationFailed, UsageError

OF_MSK = ".IAMClientCallbackHandler", ".IAMOAuthBearerLoginCallbackHandler"
HANDLERS = (*OF_MSK, ".OAuthBearerLoginCallbackHandler", ".OAuthBearerUnsecuredLoginCallbackHandler")
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
    complete = {"GSSAPI": _kerberos, "OAUTHBEARER": _oauth, "AWS_MSK_IAM": _msk_iam}.get(mechanism, _password)
    return {"sasl.mechanisms": mechanism} | complete(properties)  # of MSK: OAUTHBEARER


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
    if properties.get("sasl.login.callback.handler.class", "").endswith(OF_MSK):
        return _msk_iam(properties)
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


def _msk_iam(properties: Properties) -> Properties:
    """OAUTHBEARER, which MSK accepts for IAM."""
    servers = properties["bootstrap.servers"]
    in_host = re.search(r"\.([a-z]{2}(?:-[a-z]+)+-\d+)\.", servers)  # as Java: of the host, else of the environment
    region = in_host[1] if in_host else os.environ.get("AWS_REGION", os.environ.get("AWS_DEFAULT_REGION"))
    if not region:
        raise UsageError(f"MSK IAM needs the AWS region, which {servers} does not contain.", do="Set AWS_REGION.")
    signer = {"region": region} | {name: properties[name] for name in SIGNER if name in properties}
    return {"sasl.mechanisms": "OAUTHBEARER", "oauth_cb": msk_token, "sasl.oauthbearer.config": json.dumps(signer)}


def msk_token(config: str) -> tuple[str, float]:
    """A token and its expiry for MSK, signed with the AWS credentials of this machine; an ``oauth_cb``."""
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    region, profile, *role = (json.loads(config).get(name) for name in ("region", *SIGNER))
    try:
        if profile:
            token, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_profile(region, profile)
        elif role[0]:
            token, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_role_arn(region, *filter(None, role))
        else:
            token, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    except Exception as error:  # noqa: BLE001 - botocore's have no common class; no credentials are an AttributeError
        raise AuthenticationFailed(
            f"No token for MSK IAM could be signed ({type(error).__name__}).",
            do="Check the AWS credentials of this machine: aws sts get-caller-identity.",
        ) from None
    return token, expires_ms / 1000


def unsecured_token(config: str) -> tuple[str, float]:
    """An unsecured JWT (RFC 7515, A.5), for brokers under test that accept any subject; an ``oauth_cb``."""
    from base64 import urlsafe_b64encode

    issued = time.time()
    claims = {"sub": _pairs(config.split()).get("principal", ""), "iat": issued, "exp": issued + 3600}
    parts = (urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims))
    return f"{'.'.join(parts)}.", issued + 3600


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

        Raises
        ------
        AuthenticationFailed
            If there is none.
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

    Raises
    ------
    UsageError
        If it does not parse or has more than one module; the error never contains its text, which has secrets.
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
