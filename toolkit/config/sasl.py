"""SASL: mechanism, credentials and bearer tokens, from plain keys or ``sasl.jaas.config``."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from toolkit.config.properties import KERBEROS_KEYS, OAUTH_KEYS, PASSWORD_KEYS, Properties, refuse_java
from toolkit.errors import AuthenticationFailed, UsageError


def sasl(properties: Properties) -> Properties:
    """The canonical keys."""
    mechanism = properties.get("sasl.mechanisms", "GSSAPI").upper()  # the default of Java and of librdkafka
    if mechanism not in MODULES:
        raise UsageError(
            f"sasl.mechanism is {mechanism!r}, which is not supported.",
            means="Mechanisms other than Kafka's own are plug-ins of one client.",
            do=f"Use one of {', '.join(MODULES)}; for a cloud's identity service, use OAUTHBEARER and an oauth_cb.",
        )
    do = "Set the credentials themselves, or with OAUTHBEARER an oauth_cb."
    refuse_java(properties, "sasl.client.callback.handler.class", do=do)
    refuse_java(properties, "sasl.login.class", do=do)
    own = (".OAuthBearerLoginCallbackHandler", ".OAuthBearerUnsecuredLoginCallbackHandler")
    refuse_java(properties, "sasl.login.callback.handler.class", do=do, own=own)
    if "sasl.jaas.config" in properties:
        for key, value in jaas_properties(mechanism, properties["sasl.jaas.config"]).items():
            if properties.setdefault(key, value) != value:
                raise UsageError(f"{key} and sasl.jaas.config have different values.", do="Keep one of them.")
    complete = {"GSSAPI": _kerberos, "OAUTHBEARER": oauth}.get(mechanism, _password)
    return {"sasl.mechanisms": mechanism} | complete(properties)


def _password(properties: Properties) -> Properties:
    for key in PASSWORD_KEYS:
        if not properties.get(key):
            raise UsageError(
                f"{properties['sasl.mechanisms']} needs credentials, and {key} is missing.",
                do="Set sasl.username and sasl.password, or sasl.jaas.config.",
            )
    return {key: properties[key] for key in PASSWORD_KEYS}


def _kerberos(properties: Properties) -> Properties:
    kerberos = {key: properties[key] for key in KERBEROS_KEYS if key in properties}
    if "%{" not in kerberos.get("sasl.kerberos.kinit.cmd", "%{"):
        del kerberos["sasl.kerberos.kinit.cmd"]  # Java's key of this name is only the path of kinit
    if not kerberos.keys() & {"sasl.kerberos.keytab", "sasl.kerberos.kinit.cmd"}:
        kerberos["sasl.kerberos.min.time.before.relogin"] = "0"  # the ticket cache: no kinit by librdkafka
    return kerberos


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """Where kafka-python takes its ticket from, as Java's ``Krb5LoginModule`` does.

    Parameters
    ----------
    service
        Kerberos service name of the brokers.
    keytab
        File with the client's key; null for the ticket cache.
    principal
        The client's principal; null for the first one of the keytab, or the one of the cache.
    """

    service: str
    keytab: str | None = None
    principal: str | None = None

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> KerberosLogin:
        """From canonical keys."""
        keytab, principal = (properties.get(f"sasl.kerberos.{each}") for each in ("keytab", "principal"))
        service = properties.get("sasl.kerberos.service.name", "kafka")
        return cls(service, keytab, principal if keytab else None)


def scram_name(user: str) -> str:
    """A user name as SCRAM sends it (RFC 5802, section 5.1)."""
    return user.replace("=", "=3D").replace(",", "=2C")


_LOGIN = {"username": "sasl.username", "password": "sasl.password"}
# By mechanism: the login module, and the librdkafka keys of its options.
MODULES = {
    "PLAIN": ("PlainLoginModule", _LOGIN),
    "SCRAM-SHA-256": ("ScramLoginModule", _LOGIN),
    "SCRAM-SHA-512": ("ScramLoginModule", _LOGIN),
    "GSSAPI": (
        "Krb5LoginModule",
        {
            "principal": "sasl.kerberos.principal",
            "keyTab": "sasl.kerberos.keytab",
            "serviceName": "sasl.kerberos.service.name",
        },
    ),
    "OAUTHBEARER": (
        "OAuthBearerLoginModule",
        {
            "clientId": "sasl.oauthbearer.client.id",
            "clientSecret": "sasl.oauthbearer.client.secret",
            "scope": "sasl.oauthbearer.scope",
        },
    ),
}
TOKEN = re.compile(
    r"""\s+|/\*.*?\*/|/[^\n]*"""
    r"""|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'|(?P<mark>[=;])|(?P<word>[^\s=;"'/]+)""",
    re.DOTALL,
)


def jaas_properties(mechanism: str, text: str) -> Properties:
    """The options of a login module as librdkafka keys."""
    module, options = parse_jaas(text)
    expected, names = MODULES[mechanism]
    if module.rpartition(".")[2] != expected:
        raise UsageError(
            f"sasl.jaas.config has no {expected}, which {mechanism} needs.",
            do="Set sasl.mechanism to the one of the module.",
        )
    if options.get("tokenauth") == "true":
        raise UsageError(
            "sasl.jaas.config uses a delegation token, which librdkafka cannot send.", do="Use SCRAM itself."
        )
    if any(name.startswith("ssl.") for name in options):
        raise UsageError(
            "sasl.jaas.config sets TLS for the token endpoint.", do="Set its certificates as https.ca.location (PEM)."
        )
    found = {names[name]: value for name, value in options.items() if name in names}
    prefix = "extension_"
    extensions = [f"{name.removeprefix(prefix)}={value}" for name, value in options.items() if name.startswith(prefix)]
    if extensions:
        found["sasl.oauthbearer.extensions"] = ",".join(extensions)
    if subject := options.get("unsecuredLoginStringClaim_sub"):
        found |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={subject}"}
    return found


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Parse a ``sasl.jaas.config`` into its login module and options (Kafka's ``JaasConfig``).

    Raises
    ------
    UsageError
        If it does not parse or has more than one module; the error never contains its text, which has secrets.
    """
    tokens = list(_tokens(text))
    kinds, words = "".join(kind for kind, _ in tokens), [word for _, word in tokens]
    if not re.fullmatch(r"[w=]{2,};", kinds):
        _refuse("it is not one login module ended by a semicolon")
    if words[1].lower() not in {"required", "requisite", "sufficient", "optional"}:
        _refuse("no control flag (required) follows the module")
    if not re.fullmatch(r"..(w=w)*;", kinds):
        _refuse("an option is not name=value")
    return words[0], dict(zip(words[2:-1:3], words[4:-1:3], strict=True))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of each token, as ``java.io.StreamTokenizer`` reads quotes and escapes; kind is =, ; or w."""
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if not match:
            _refuse("a quote is not closed")
        position = match.end()
        if match["mark"]:
            yield match["mark"], match["mark"]
        elif match["word"]:
            yield "w", match["word"]
        elif match.lastgroup:
            yield "w", re.sub(r"\\([0-3]?[0-7]{1,2}|.)", _unescape, match[match.lastgroup], flags=re.DOTALL)


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    return {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}.get(escape, escape)


def _refuse(why: str) -> NoReturn:
    raise UsageError(
        f"sasl.jaas.config does not parse: {why}.",
        do='Write it like: org.apache...PlainLoginModule required username="..." password="...";',
    )


def oauth(properties: Properties) -> Properties:
    """The canonical keys."""
    keys = {key: properties[key] for key in OAUTH_KEYS if key in properties}
    if "oauth_cb" in keys or keys.get("enable.sasl.oauthbearer.unsecure.jwt") == "true":
        return keys
    keys["sasl.oauthbearer.method"] = "oidc"
    if _only_librdkafka(keys):
        return keys
    for key in ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"):
        if not keys.get(key):
            raise UsageError(
                f"OAUTHBEARER needs credentials, and {key} is missing.",
                do="Set it (in sasl.jaas.config: clientId, clientSecret), or an oauth_cb "
                "that returns (token, expiry in seconds since the epoch).",
            )
    if not re.match(r"https?://[^/@]+(/|$)", keys.get("sasl.oauthbearer.token.endpoint.url", "")):
        raise UsageError(
            "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url: an http(s) address, without credentials in it.",
            do="Set the token endpoint of the identity provider.",
        )
    return keys


def _only_librdkafka(keys: Mapping[str, str]) -> bool:
    """Token sources built into librdkafka: a signed assertion, and a cloud's metadata service."""
    return (
        keys.get("sasl.oauthbearer.grant.type", "client_credentials") != "client_credentials"
        or keys.get("sasl.oauthbearer.metadata.authentication.type", "none") != "none"
    )


class TokenProvider:
    """A bearer token for kafka-python, kept until shortly before it expires.

    It has the methods of kafka-python's ``AbstractTokenProvider``; the module that imports kafka-python registers it
    there as a virtual subclass.

    Parameters
    ----------
    fetch
        Returns a token and when it expires, in seconds since the epoch.
    extensions
        SASL extensions (KIP-342).
    """

    EARLY = 30.0  # seconds before its expiry at which a new token is fetched,
    WINDOW = 0.8  # or this part of its lifetime: before a connection authenticates again (Java's refresh window)

    def __init__(self, fetch: Callable[[], tuple[str, float]], extensions: Mapping[str, str] | None = None) -> None:
        self._fetch = fetch
        self._extensions = dict(extensions or {})
        self._token, self._expires, self._renew_at = "", 0.0, 0.0
        self._lock = threading.Lock()

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> TokenProvider:
        """The provider for canonical OAUTHBEARER keys: an ``oauth_cb``, an unsecured token, or a token endpoint."""
        extensions = _pairs(properties.get("sasl.oauthbearer.extensions", "").split(","))
        if callback := properties.get("oauth_cb"):
            return cls(lambda: tuple(callback(properties.get("sasl.oauthbearer.config", "")))[:2], extensions)
        if properties.get("enable.sasl.oauthbearer.unsecure.jwt") == "true":
            return cls(lambda: _unsecured_token(properties), extensions)
        if _only_librdkafka(properties):
            raise UsageError(
                "Only librdkafka gets tokens by an assertion or from a cloud's metadata service.",
                do="Set an oauth_cb that returns (token, expiry in seconds since the epoch): every client uses it.",
            )
        return cls(lambda: _client_credentials(properties), extensions)

    def token(self) -> str:
        """A valid token; the last one if it is still valid and the token endpoint returned no other.

        Raises
        ------
        AuthenticationFailed
            If the token endpoint returned none.
        """
        with self._lock:
            now = time.time()
            if now >= self._renew_at:
                try:
                    self._token, self._expires = self._fetch()
                except AuthenticationFailed:
                    if now >= self._expires:
                        raise
                    return self._token
                lifetime = self._expires - now
                self._renew_at = now + min(self.WINDOW * lifetime, lifetime - self.EARLY)
            return self._token

    def extensions(self) -> dict[str, str]:
        """SASL extensions of the token."""
        return dict(self._extensions)


def _client_credentials(properties: Mapping[str, Any]) -> tuple[str, float]:
    """A token and its expiry from an OAuth 2 token endpoint (RFC 6749, section 4.4)."""
    import base64
    import json
    import ssl
    import urllib.error
    import urllib.parse
    import urllib.request

    url = properties["sasl.oauthbearer.token.endpoint.url"]
    identity = f"{properties['sasl.oauthbearer.client.id']}:{properties['sasl.oauthbearer.client.secret']}"
    form = {"grant_type": "client_credentials"}
    if scope := properties.get("sasl.oauthbearer.scope"):
        form["scope"] = scope
    request = urllib.request.Request(  # noqa: S310 - http(s) only, checked when the configuration was built
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(identity.encode()).decode(),
            "Accept": "application/json",
        },
    )
    try:
        context = ssl.create_default_context(
            cafile=properties.get("https.ca.location"), cadata=properties.get("https.ca.pem")
        )
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


def _unsecured_token(properties: Mapping[str, Any]) -> tuple[str, float]:
    """An unsecured JWT (RFC 7515, A.5), for brokers under test that accept any subject."""
    import base64
    import json

    subject = _pairs(properties.get("sasl.oauthbearer.config", "").split()).get("principal", "")
    issued = time.time()
    parts = ({"alg": "none"}, {"sub": subject, "iat": issued, "exp": issued + 3600})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join((*encoded, "")), issued + 3600


def _pairs(items: Iterable[str]) -> dict[str, str]:
    return {key.strip(): value.strip() for key, _, value in (item.partition("=") for item in items) if key.strip()}
