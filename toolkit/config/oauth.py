"""OAUTHBEARER: its keys and bearer tokens."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toolkit.config.keys import OAUTH_KEYS, Properties
from toolkit.errors import AuthenticationFailed, UsageError


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

    EARLY = 30.0  # seconds before its expiry at which a new token is fetched

    def __init__(self, fetch: Callable[[], tuple[str, float]], extensions: Mapping[str, str] | None = None) -> None:
        self._fetch = fetch
        self._extensions = dict(extensions or {})
        self._token, self._expires = "", 0.0
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
        """A valid token.

        Raises
        ------
        AuthenticationFailed
            If the token endpoint returned none.
        """
        with self._lock:
            if time.time() > self._expires - self.EARLY:
                self._token, self._expires = self._fetch()
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
