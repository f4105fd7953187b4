"""Who may ask `localspec serve`: Host, Origin and key, first as functions, then over HTTP."""

from __future__ import annotations

import pytest

pytest.importorskip("uvicorn")

from localspec.serve.gate import Rules, check, is_loopback
from localspec.serve.problems import Problem
from tests.serve_tools import ScriptedEngine, serving

LOCAL = Rules("127.0.0.1")


def status(rules: Rules, path: str = "/v1/models", **headers: str) -> int:
    """What a request with these headers gets; 200 = let in."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        check(rules, named, needs_key=path != "/health")
    except Problem as problem:
        return problem.status
    return 200


@pytest.mark.parametrize("host", ["localhost", "localhost:8713", "127.0.0.1:8713", "[::1]:8713", "LOCALHOST:1"])
def test_the_machines_own_names_are_let_in(host: str) -> None:
    assert status(LOCAL, host=host) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8713", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.1.5", "",
     "localhost:80:80", "localhost/", "evil@localhost", "[::1", "127.0.0.1\t", "xn--lcalhost-1db", "0.0.0.0"],
)  # fmt: skip
def test_a_rebinding_host_is_refused(host: str) -> None:
    assert status(LOCAL, host=host) == 421


def test_a_missing_host_is_refused() -> None:
    assert status(LOCAL) == 421


def test_named_hosts_are_let_in_and_addresses_only_beyond_loopback() -> None:
    assert status(Rules("127.0.0.1", hosts=frozenset({"box.lan"})), host="BOX.lan:1") == 200
    wide = Rules("0.0.0.0", keys=("k",))
    assert status(wide, "/health", host="192.168.1.5:8713") == 200
    assert status(wide, "/health", host="evil.example") == 421


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000", "file://", "http://[bad"])
def test_other_origins_are_refused_even_on_this_machine(origin: str) -> None:
    assert status(LOCAL, host="localhost:8713", origin=origin) == 403


def test_own_and_allowed_origins_are_let_in() -> None:
    assert status(LOCAL, host="localhost:8713", origin="http://localhost:8713") == 200
    allowed = Rules("127.0.0.1", origins=frozenset({"http://localhost:3000"}))
    assert status(allowed, host="localhost:8713", origin="http://localhost:3000") == 200
    assert status(allowed, host="localhost:8713", origin="http://localhost:3001") == 403
    assert status(Rules("127.0.0.1", origins=frozenset({"*"})), host="localhost", origin="https://any") == 200


def test_a_cross_site_request_without_origin_is_refused() -> None:
    assert status(LOCAL, host="localhost", sec_fetch_site="cross-site") == 403
    assert status(LOCAL, host="localhost", sec_fetch_site="none") == 200


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer wrong", "Basic secret", "secret", "Bearer secretx", "Bearer sécret"],
)
def test_a_missing_or_wrong_key_is_refused(header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    assert status(Rules("127.0.0.1", keys=("secret", "other")), host="localhost", **headers) == 401


def test_any_of_the_keys_lets_in_and_health_needs_none() -> None:
    rules = Rules("127.0.0.1", keys=("secret", "other"))
    for header in ("Bearer secret", "bearer other", "Bearer  secret "):
        assert status(rules, host="localhost", authorization=header) == 200
    assert status(rules, "/health", host="localhost") == 200
    assert status(rules, "/metrics", host="localhost") == 401


def test_which_addresses_are_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.2", "example.org", "")))


def test_refusals_over_http_have_openais_shape() -> None:
    with serving(ScriptedEngine(), rules=Rules("127.0.0.1", keys=("secret",))) as live:
        rebound = live.get("/v1/models", Host="evil.example")
        assert rebound.status == 421 and rebound.json["error"]["code"] == "wrong_host"
        page = live.post("/v1/completions", {"prompt": "x"}, Origin="https://evil.example")
        assert page.status == 403 and "access-control-allow-origin" not in page.headers
        assert live.send("OPTIONS", "/v1/completions", Origin="https://evil.example").status == 403
        missing = live.chat()
        assert missing.status == 401 and missing.headers["www-authenticate"] == "Bearer"
        assert missing.json["error"]["type"] == "authentication_error"
        assert (
            live.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, Authorization="Bearer secret").status == 200
        )


def test_an_allowed_page_gets_its_preflight_and_its_answer() -> None:
    rules = Rules("127.0.0.1", keys=("secret",), origins=frozenset({"http://app.test"}))
    with serving(ScriptedEngine(), rules=rules) as live:
        preflight = live.send("OPTIONS", "/v1/completions", Origin="http://app.test")
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-origin"] == "http://app.test"
        assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
        body = {"prompt": "x", "max_tokens": 1, "stream": True}
        reply = live.post("/v1/completions", body, Origin="http://app.test", Authorization="Bearer secret")
        assert reply.status == 200 and reply.headers["access-control-allow-origin"] == "http://app.test"
        refused = live.post("/v1/completions", body, Origin="http://app.test")
        assert refused.status == 401 and refused.headers["access-control-allow-origin"] == "http://app.test"
