"""Addresses never to connect to: private ones, by whichever way they are named."""

import socket

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools.browser import Browser
from gptoss_local.talk.tools.browser.addresses import check_url, is_public
from gptoss_local.talk.tools.browser.fetching import Fetcher
from tests.tools.browser.conftest import Model
from tests.tools.browser.site import Site, redirect, running_site, text

pytestmark = pytest.mark.quick

PRIVATE = (
    *("127.0.0.1", "127.255.255.254", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("0.0.0.0", "0.1.2.3", "100.64.0.1", "100.100.100.200", "100.127.255.255", "169.254.1.1"),
    *("169.254.169.254", "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1"),
    *("203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("168.63.129.16", "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::7f00:1", "fe80::1"),
    *("fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "64:ff9b::7f00:1"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2001::1", "2001:db8::1", "2002:7f00:1::"),
    *("2002:a9fe:a9fe::1", "100::1", "3fff::1", "5f00::1", "2606:4700::1111%eth0"),
    *("", "localhost", "127.1", "8.8.8.8.", "8.8.8.08", "1.1.1.1/32"),
)
PUBLIC = ("8.8.8.8", "1.1.1.1", "100.63.255.255", "172.32.0.1", "2606:4700::1111")
PUBLIC += ("64:ff9b::808:808",)

LOOPBACK = (
    *("127.0.0.1", "127.1", "0x7f.1", "0177.0.0.1", "2130706433", "0x7f000001", "017700000001"),
    *("localhost", "localhost.", "LOCALHOST", "127.0.0.1.", "0", "0.0.0.0", "127。0。0。1"),
    *("１２７.0.0.1", "127．0．0．1", "①27.0.0.1", "%31%32%37.0.0.1", "[::1]", "[::]"),
    *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]", "[::127.0.0.1]"),
    *("ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[fe80::1%25lo]"),
)


@pytest.mark.parametrize("address", [*PRIVATE, *PUBLIC])
def test_public_addresses(address: str) -> None:
    assert is_public(address) == (address in PUBLIC)


@pytest.mark.parametrize("host", LOOPBACK)
async def test_each_spelling_of_this_machine_is_refused(host: str, site: Site) -> None:
    """By the system's resolver, which decides the address of a spelling."""
    with pytest.raises(UsageError):
        await Fetcher(timeout_s=10).fetch(f"http://{host}:{site.port}/code.html")
    assert not site.requests


class Names:
    """A resolver with answers that change; asks the system for nothing."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self._answers = {name.replace("_", "."): list(each) for name, each in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        answers = self._answers.get(host)
        if not answers:
            raise socket.gaierror("unknown name")
        return answers.pop(0) if len(answers) > 1 else answers[0]


class Connections:
    """The addresses connected to; every public address is the site of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
        import anyio

        self.hosts: list[str] = []
        connect = anyio.connect_tcp

        async def watched(remote_host: str, remote_port: int, **options: object) -> object:
            self.hosts.append(remote_host)
            assert is_public(remote_host), "it was to be checked before"
            options.pop("local_host", None)
            return await connect("127.0.0.1", site.port)

        monkeypatch.setattr(anyio, "connect_tcp", watched)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch, site: Site) -> Connections:
    return Connections(monkeypatch, site)


async def test_a_site_is_connected_to_by_its_checked_address(
    site: Site, connections: Connections
) -> None:
    """DNS rebinding: the name is asked for once, so a second answer changes nothing."""
    names = Names(evil_example=[["93.184.216.34"], ["127.0.0.1"]])
    page = await Fetcher(resolve=names).fetch("http://evil.example/code.html")
    assert page.url == "http://evil.example/code.html"
    assert site.requests[0][2]["host"] == "evil.example"
    assert names.asked == ["evil.example"]
    with pytest.raises(UsageError, match=r"evil\.example is at 127\.0\.0\.1"):
        await Fetcher(resolve=names).fetch("http://evil.example/code.html")
    assert connections.hosts == ["93.184.216.34"]


@pytest.mark.parametrize("private", ["127.0.0.1", "169.254.169.254", "::1", "fd00:ec2::254"])
async def test_one_private_answer_is_enough_to_refuse(
    private: str, connections: Connections
) -> None:
    for answers in ([private], ["93.184.216.34", private], [private, "93.184.216.34"]):
        with pytest.raises(UsageError, match="not an address of the public internet"):
            await Fetcher(resolve=Names(a_example=[answers])).fetch("http://a.example/")
    assert not connections.hosts


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1/",
        "http://intra.example/",
        "//169.254.169.254/latest/meta-data/",
        "http://[::ffff:7f00:1]/",
        "https://metadata.example/",
        "/secret",  # by the name that was public for the first request
    ],
)
async def test_a_redirect_to_a_private_address_is_refused(
    location: str, site: Site, connections: Connections
) -> None:
    site.answers["/go"] = redirect(location)
    names = Names(
        site_example=[["93.184.216.34"], ["192.168.0.1"]],
        intra_example=[["10.0.0.1"]],
        metadata_example=[["169.254.169.254"]],
    )
    names._answers |= {host: [[host]] for host in ("127.0.0.1", "169.254.169.254", "::ffff:7f00:1")}
    with pytest.raises(UsageError, match="not an address of the public internet"):
        await Fetcher(resolve=names).fetch("http://site.example/go")
    assert connections.hosts == ["93.184.216.34"]
    assert site.paths == ["/go"]


async def test_a_link_on_a_public_page_does_not_lead_inside(
    site: Site, connections: Connections
) -> None:
    site.answers["/"] = text("<p><a href='http://router.example/admin'>free gifts</a>", "text/html")
    names = Names(site_example=[["93.184.216.34"]], router_example=[["192.168.1.1"]])
    model = Model(Browser(Settings(), is_on=True, fetcher=Fetcher(resolve=names)))
    assert "【0†free gifts†router.example】" in await model.call("open", id="http://site.example/")
    answer = await model.call("open", id=0)
    assert answer.startswith("Error: `http://router.example/admin` is not opened")
    assert connections.hosts == ["93.184.216.34"]


async def test_private_addresses_are_opened_if_the_user_says_so(site: Site) -> None:
    """And another one is tried if one does not answer."""
    names = Names(two_example=[["127.0.0.2", "127.0.0.1"]], localhost=[["127.0.0.1"]])
    for host in ("two.example", "localhost"):
        allowed = Fetcher(may_be_private=True, resolve=names)
        assert (await allowed.fetch(f"http://{host}:{site.port}/code.html")).body
    assert (await Fetcher(may_be_private=True).fetch(f"{site.url}/code.html")).body


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://a.example/", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("javascript://a.example/%0aalert(1)", "only http and https"),
        ("data:text/html,x", "only http and https"),
        ("http://user:secret@a.example/", "user name or password"),
        ("http://user@a.example/", "user name or password"),
        ("http:///path", "names no host"),
        ("http://a.example:22/", "port 22"),
        ("http://a.example:25/", "port 25"),
        ("http://a.example:6379/", "port 6379"),
        ("http://a.example:11211/", "port 11211"),
        ("http://a.example:99999/", "is not a URL"),
        ("http://[::1/", "is not a URL"),
        ("http://a\nb.example/", "is not a URL"),
    ],
)
def test_urls_that_are_refused(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as raised:
        check_url(url)
    assert "secret" not in raised.value.message


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("example.com/a?b#c", "https://example.com/a?b"),
        (" https://Example.com ", "https://example.com"),
        ("http://a.example:80/", "http://a.example/"),
        ("http://a.example:443/", "http://a.example:443/"),
        ("http://a.example:8080/", "http://a.example:8080/"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
    ],
)
def test_urls_that_are_opened(url: str, normal: str) -> None:
    assert str(check_url(url)) == normal


async def test_a_proxy_of_the_environment_connects_by_name(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And gets no name that is known to be private."""
    with running_site() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        proxy.answers["http://site.example/"] = text("by the proxy")
        proxy.answers["http://unknown.example/"] = text("by the proxy, too")
        names = Names(site_example=[["93.184.216.34"]], intra_example=[["10.0.0.1"]])
        fetcher = Fetcher(resolve=names)
        assert (await fetcher.fetch("http://site.example/")).body == b"by the proxy"
        assert (await fetcher.fetch("http://unknown.example/")).body == b"by the proxy, too"
        for host in ("intra.example", "router", "printer.local", "api.internal", "x.localhost."):
            with pytest.raises(UsageError):
                await fetcher.fetch(f"http://{host}/")
        assert proxy.paths == ["http://site.example/", "http://unknown.example/"]
        allowed = Fetcher(may_be_private=True)
        assert (await allowed.fetch(f"{site.url}/code.html")).body  # not by the proxy
        assert len(proxy.paths) == 2
        monkeypatch.setenv("no_proxy", "site.example")
        with pytest.raises(UsageError, match="Error fetching"):
            await Fetcher(may_be_private=True, resolve=Names(site_example=[["127.0.0.9"]])).fetch(
                "http://site.example:8009/"
            )
        assert len(proxy.paths) == 2
