"""Proxies of the environment: ignored unless asked for, and what is said is what is used."""

import pytest

from nl_cutover.errors import UsageError
from nl_cutover.ingress.endpoint import proxy_from_environment
from nl_cutover.ingress.operations import Operations
from nl_cutover.ingress.session import Session
from nl_cutover.verdicts import NotSent
from tests.ingress.fake import RawServer, endpoint

HTTP, HTTPS = "http://127.0.0.1:3102/mc/mcp", "https://mc.example/mcp"


@pytest.mark.parametrize(
    ("environ", "url", "found"),
    [
        ({}, HTTP, None),
        ({"HTTP_PROXY": "http://p:1"}, HTTP, ("HTTP_PROXY", "http://p:1")),
        ({"http_proxy": "http://q:1", "HTTP_PROXY": "http://p:1"}, HTTP, ("http_proxy", "http://q:1")),
        ({"HTTP_PROXY": "http://p:1"}, HTTPS, None),
        ({"HTTPS_PROXY": "p:1"}, HTTPS, ("HTTPS_PROXY", "http://p:1")),
        ({"ALL_PROXY": "http://p:1"}, HTTPS, ("ALL_PROXY", "http://p:1")),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "localhost, 127.0.0.1"}, HTTP, None),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": ".example"}, HTTPS, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, HTTPS, None),
        ({"HTTP_PROXY": " "}, HTTP, None),
    ],
)
def test_which_proxy_the_environment_names(environ, url, found):
    assert proxy_from_environment(environ, url) == found


def test_the_named_proxy_is_the_one_that_is_asked():
    def refuse(connection, body):
        connection.sendall(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    with RawServer(refuse) as server:
        proxy = server.url.removesuffix("/mc/mcp")
        Operations(Session(endpoint("http://127.0.0.1:9/mc/mcp", proxy=proxy))).save(b"{}")
    assert server.requests[0].startswith(b"POST http://127.0.0.1:9/mc/mcp")
    assert isinstance(Operations(Session(endpoint("http://127.0.0.1:9/mc/mcp"))).save(b"{}"), NotSent)


def test_a_proxy_elsewhere_would_see_a_token_in_cleartext():
    with pytest.raises(UsageError, match=r"cleartext to the proxy proxy\.example"):
        endpoint(HTTP, proxy="http://proxy.example:3128")
    assert endpoint(HTTP, proxy="http://proxy.example:3128", cleartext=True).cleartext
    assert endpoint(HTTPS, proxy="http://proxy.example:3128").proxy


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "http://", "http://[::1", "http://127.0.0.1:99999"])
def test_a_proxy_that_cannot_be_used_is_refused(proxy):
    with pytest.raises(UsageError, match="proxy"):
        endpoint(HTTP, proxy=proxy)


def test_the_name_of_a_proxy_shows_no_password():
    assert endpoint(HTTP, proxy="http://u:hunter2@127.0.0.1:1").proxy_name == "http://127.0.0.1:1"
