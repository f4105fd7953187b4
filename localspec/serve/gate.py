"""Who may ask: the Host header, the Origin header, the key. Pure functions on headers."""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from localspec.serve.problems import Problem

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::\d{1,5})?")


@dataclass(frozen=True, slots=True)
class Rules:
    """What a server was started with."""

    bind: str
    """The address that is listened on."""
    keys: tuple[str, ...] = ()
    """Any of these lets a request in; none = no key is asked for."""
    hosts: frozenset[str] = frozenset()
    """Further names that may stand in a Host header."""
    origins: frozenset[str] = frozenset()
    """Web pages (`http://localhost:3000`) that may call; "*" = all."""


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach `address`."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def check(rules: Rules, headers: dict[str, str], *, needs_key: bool) -> None:
    """Raises a Problem for a request that must not be answered. `headers` have lower-case names."""
    check_host(rules, headers.get("host"))
    check_origin(rules, headers)
    if needs_key:
        check_key(rules, headers.get("authorization"))


def check_host(rules: Rules, header: str | None) -> None:
    """Against DNS rebinding: a foreign name that resolves to this machine is not this server."""
    match = _HOST.fullmatch(header or "")
    name = (match["six"] or match["name"]).lower() if match else ""
    if name in LOOPBACK_NAMES or (name and name in {rules.bind.lower()} | {host.lower() for host in rules.hosts}):
        return
    if not is_loopback(rules.bind) and (_is_ip(name) or (name and name == socket.gethostname().lower())):
        return  # an address cannot be rebound, and a key is asked for there
    raise Problem(421, "this server does not answer for that Host; see localspec serve --allow-host", code="wrong_host")


def check_origin(rules: Rules, headers: dict[str, str]) -> None:
    """Pages of other sites may not call, not even without reading the answer."""
    origin = headers.get("origin")
    if origin is None:
        if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
            return
    elif allowed_origin(rules, headers, origin):
        return
    raise Problem(
        403,
        "web pages of other origins may not call; see localspec serve --allow-origin",
        code="wrong_origin",
    )


def allowed_origin(rules: Rules, headers: dict[str, str], origin: str) -> bool:
    """Whether a page of `origin` may call: this server's own, and those that were allowed."""
    if "*" in rules.origins or origin in rules.origins:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == headers.get("host", "").lower()


def check_key(rules: Rules, header: str | None) -> None:
    """In constant time, whatever is wrong with the key."""
    if not rules.keys:
        return
    scheme, _, given = (header or "").partition(" ")
    found = False
    for key in rules.keys:
        found |= hmac.compare_digest(given.strip().encode("utf-8", "replace"), key.encode())
    if scheme.lower() != "bearer" or not found:
        what = "wrong API key" if header else "this server asks for an API key: Authorization: Bearer KEY"
        raise Problem(401, what, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
