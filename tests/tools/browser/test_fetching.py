"""Pages fetched from a site on this machine, and which sites it survives."""

import asyncio
import datetime
import gzip
import socket
import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509

from gptoss_local.base.errors import UsageError
from gptoss_local.server import lan
from gptoss_local.talk.tools.browser import fetching
from gptoss_local.talk.tools.browser.fetching import Fetcher
from gptoss_local.talk.tools.browser.page import Fetched
from gptoss_local.talk.tools.browser.reader import read
from gptoss_local.talk.tools.browser.reading import read_content
from tests.tools.browser.conftest import Model
from tests.tools.browser.site import Site, bomb, pdf, redirect, text

N_BYTES = 2**20


def fetcher(timeout_s: float = 20) -> Fetcher:
    return Fetcher(may_be_private=True, n_bytes=N_BYTES, timeout_s=timeout_s)


async def refused(url: str, timeout_s: float = 20) -> str:
    with pytest.raises(UsageError) as raised:
        await fetcher(timeout_s).fetch(url)
    return raised.value.message


async def test_a_page_is_opened_followed_and_searched(site: Site, model: Model) -> None:
    opened = await model.call("open", id=f"{site.url}/relative.html")
    assert f"Relative links ({site.url}/relative.html)" in opened
    assert "【0†next】" in opened
    site.answers["/next.html"] = text("<title>Next</title><p>The next page", "text/html")
    followed = await model.call("open", cursor=0, id=0)
    assert followed.startswith(f"[1] Next ({site.url}/next.html)")
    assert await model.call("open", cursor=0, id="0") == followed.replace("[1]", "[2]")
    assert site.paths.count("/next.html") == 1
    await model.call("open", id=f"{site.url}/next.html")  # a URL is fetched again, as a refresh
    assert site.paths.count("/next.html") == 2
    found = await model.call("find", pattern="NEXT page")
    assert "# 【0†match at L2】\nL1: The next page" in found


async def test_the_site_gets_no_more_than_it_needs(site: Site) -> None:
    await fetcher().fetch(f"{site.url}/code.html?a=b#part")
    ((method, path, headers, _),) = site.requests
    assert (method, path) == ("GET", "/code.html?a=b")
    assert headers["host"] == f"127.0.0.1:{site.port}"
    assert headers["user-agent"].startswith("Mozilla/5.0 (compatible; gptoss/")
    assert not {"cookie", "referer", "authorization"} & set(headers)


async def test_redirects(site: Site) -> None:
    site.answers |= {"/a": redirect("/b/"), "/b/": redirect("../code.html#x")}
    assert (await fetcher().fetch(f"{site.url}/a")).url == f"{site.url}/code.html"
    site.answers |= {f"/{n}": redirect(f"/{n + 1}") for n in range(5)}
    site.answers["/5"] = text("five")
    assert (await fetcher().fetch(f"{site.url}/0")).body == b"five"
    site.answers["/first"] = redirect("/0")
    assert "redirects more than 5 times" in await refused(f"{site.url}/first")
    for bad in ("ftp://127.0.0.1/", "file:///etc/passwd", "http://u:p@127.0.0.1/", "http://[x"):
        site.answers["/bad"] = redirect(bad)
        await refused(f"{site.url}/bad")
    site.answers["/none"] = (302, {}, b"")
    assert "302" in await refused(f"{site.url}/none")


async def test_compression(site: Site) -> None:
    body = b"packed " * 1000
    site.answers["/z"] = text(gzip.compress(body), **{"Content-Encoding": "GZip"})
    assert (await fetcher().fetch(f"{site.url}/z")).body == body
    site.answers["/z"] = text(b"no gzip", **{"Content-Encoding": "gzip"})
    assert "compressed badly" in await refused(f"{site.url}/z")
    site.answers["/z"] = text(b"?", **{"Content-Encoding": "br"})
    assert "compressed, which was not asked for" in await refused(f"{site.url}/z")


async def test_what_is_too_large_is_not_read_to_its_end(site: Site) -> None:
    site.answers["/bomb"] = text(bomb(200_000_000), **{"Content-Encoding": "gzip"})
    assert "more than 1 MiB" in await refused(f"{site.url}/bomb")
    site.answers["/huge"] = text(b"x" * (2**20 + 1))
    assert "more than 1 MiB" in await refused(f"{site.url}/huge")
    for body in (b"x" * 2**20, gzip.compress(b"x" * 2**20)):
        packed = {"Content-Encoding": "gzip"} if len(body) < 2**20 else {}
        site.answers["/fits"] = text(body, **packed)
        assert len((await fetcher().fetch(f"{site.url}/fits")).body) == 2**20


async def test_a_slow_site_is_left(site: Site) -> None:
    """Each byte comes in time, the page never ends."""
    start_s = time.monotonic()
    assert "longer than 0.5 s" in await refused(f"{site.url}/slow", 0.5)
    assert time.monotonic() - start_s < 15


async def test_a_site_that_is_not_one() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        assert "Error fetching URL" in await refused(f"http://127.0.0.1:{port}/")

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert "Error fetching URL" in await refused(f"http://127.0.0.1:{port}/")
        assert "Error fetching URL" in await refused(f"https://127.0.0.1:{port}/")


async def test_statuses_and_types(site: Site) -> None:
    assert "404 Not Found" in await refused(f"{site.url}/nothing")
    site.answers["/i"] = text(b"\x89PNG", "image/png")
    assert "is image/png, which cannot be read as text" in await refused(f"{site.url}/i")
    site.answers["/v"] = text(b"", "video/mp4; codecs=x")
    assert "is video/mp4" in await refused(f"{site.url}/v")


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        ('{"a": [1, "【x】"]}', "application/json", '{"a": [1, "〖x〗"]}'),
        ("# Title\n\n*text*", "text/markdown", "# Title\n\n*text*"),
        ("<b>no page</b>", "text/plain", "<b>no page</b>"),
        ("a\r\nb\tc\x07", "text/plain; charset=utf-8", "a\nb\tc"),
        ("grüße".encode("latin-1"), "text/plain; charset=iso-8859-1", "grüße"),
        ("grüße".encode("latin-1"), "text/plain; charset=utf-8", "grüße"),
        ("grüße".encode(), "text/plain; charset=no-such", "grüße"),
        ("grüße, ".encode() * 9 + b"\xff", "text/plain; charset=utf-8", "grüße, grüße"),
        ("Съешь ещё этих булок. ".encode("cp1251") * 9, "text/plain", "Съешь ещё этих булок."),
        ("grüße".encode("utf-16"), "text/plain", "grüße"),
        ("\ufeffgrüße".encode(), "text/plain; charset=ascii", "grüße"),
        ("привет, мир".encode("koi8-r"), "text/plain; charset=koi8-r", "привет, мир"),
        ("<p>grüße".encode("latin-1"), "text/html; charset=utf-8", "grüße"),
        ('<meta charset="windows-1251"><p>привет'.encode("cp1251"), "text/html", "привет"),
        ("<html><body><p>sniffed", "", "sniffed"),
        ("<rss><title>feed</title></rss>", "application/rss+xml", "<rss><title>feed"),
        ('<?xml version="1.0" encoding="utf-8"?><html><p>x', "application/xhtml+xml", "x"),
        ("<p>emoji 😀 kept", "text/html", "emoji 😀 kept"),
    ],
)
async def test_kinds_and_charsets(site: Site, body: str, kind: str, expected: str) -> None:
    site.answers["/x"] = text(body, kind)
    content = read_content(await fetcher().fetch(f"{site.url}/x"), is_source=False)
    assert content.text.partition(f"URL: {site.url}/x\n")[2].startswith(expected)


async def test_a_pdf(site: Site, model: Model) -> None:
    body = pdf("Hello from page one", "and page two", title="A 【1†paper】")
    site.answers["/p.pdf"] = text(body, "application/octet-stream")
    opened = await model.call("open", id=f"{site.url}/p.pdf")
    assert opened.startswith(f"[0] A 〖1†paper〗 ({site.url}/p.pdf)")
    assert "L2: [page 1]\nL3: Hello from page one" in opened
    assert "and page two" in opened
    source = await model.call("open", view_source=True)
    assert source.endswith("cannot be read: a PDF has no source")
    site.answers["/p.pdf"] = text(body[:300], "application/pdf")
    assert "the PDF is damaged" in await model.call("open", id=f"{site.url}/p.pdf")
    site.answers["/p.pdf"] = text(pdf(""), "application/pdf")
    assert "the PDF has no text" in await model.call("open", id=f"{site.url}/p.pdf")


async def test_the_source_of_a_page(site: Site, model: Model) -> None:
    await model.call("open", id=f"{site.url}/code.html")
    source = await model.call("open", view_source=True)
    assert source.startswith(f"[1] code.html (view-source:{site.url}/code.html)")
    assert "L2: <html><head><title>How to sort</title>" in source
    assert site.paths.count("/code.html") == 2
    more = await model.call("open", loc=3)
    assert more.startswith(f"[2] code.html (view-source:{site.url}/code.html)\n**viewing lines [3")


@pytest.mark.parametrize(
    ("body", "kind", "why"),
    [
        (b"", "text/html", "it is empty"),
        (b"abc\0def", "text/plain", "it is not text"),
    ],
)
async def test_what_cannot_be_read(body: bytes, kind: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        await read(Fetched("https://a.example/", kind, body))


async def test_a_page_that_takes_for_ever_is_given_up() -> None:
    start_s = time.monotonic()
    slow = Fetched("https://a.example/", "text/html", b"<pre>" + b"\n" * 3_000_000)
    with pytest.raises(UsageError, match="takes longer than 2 s"):
        await read(slow, timeout_s=2)
    assert time.monotonic() - start_s < 20


@pytest.mark.parametrize("tag", ["div", "ul><li", "table><tr><td", "blockquote", "b"])
def test_a_page_that_is_nested_too_deeply_is_read_as_far_as_it_goes(tag: str) -> None:
    body = b"<p>Begin</p>" + f"<{tag}>".encode() * 3000 + b"end"
    content = read_content(Fetched("https://a.example/", "text/html", body), is_source=False)
    assert "Begin" in content.text
    assert "end" in content.text or "cannot be read: it is nested too deeply" in content.text


async def test_tls_is_of_the_name_and_the_connection_to_a_checked_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = tmp_path / "certificate.pem"
    names_of_it = x509.SubjectAlternativeName([x509.DNSName("site.example")])
    lan._make_certificate(certificate, names_of_it, datetime.datetime.now(datetime.UTC))
    context.load_cert_chain(certificate)
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + asked)
        await writer.drain()
        writer.close()

    async def resolve(host: str, _: int) -> list[str]:
        assert host.endswith("site.example")
        return ["127.0.0.1"]

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        opened = Fetcher(may_be_private=True, resolve=resolve)
        with pytest.raises(UsageError, match=r"(?i)certificate"):
            await opened.fetch(f"https://site.example:{port}/")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        fetching._ssl_context.cache_clear()
        try:
            page = await opened.fetch(f"https://site.example:{port}/a")
            assert f"Host: site.example:{port}".encode() in page.body
            with pytest.raises(UsageError, match=r"(?i)hostname"):
                await opened.fetch(f"https://another-site.example:{port}/")
        finally:
            fetching._ssl_context.cache_clear()
    assert names == ["site.example", "site.example", "another-site.example"]
