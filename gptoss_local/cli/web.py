"""`gptoss web`: the chats in a browser, on this machine or on a phone in the local network."""

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from gptoss_local.base.errors import UsageError
from gptoss_local.base.printable import write_style
from gptoss_local.base.settings import Settings, config_path, load_settings
from gptoss_local.cli._options import Json, running_server
from gptoss_local.cli._output import RESET, is_linear, is_plain, print_json, report, say

_WHITE_ON_BLACK = "\x1b[38;5;231;48;5;16m"  # whatever the terminal's colours are


def web(
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the link.")] = False,
    lan: Annotated[
        bool, typer.Option("--lan", help="Let a phone in: print its link and a QR code.")
    ] = False,
    no_tls: Annotated[bool, typer.Option("--no-tls", help="With --lan: without TLS.")] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="With --lan: let no phone in any more.")
    ] = False,
    json: Json = False,
) -> None:
    """Starts a server if none answers; it continues until `gptoss stop`. The link works once."""
    settings = load_settings()
    if not lan and (no_tls or stop):
        raise UsageError("--no-tls and --stop belong to --lan")
    if stop:
        _close_lan(settings, json=json)
    elif lan:
        scheme = "http" if no_tls or settings.lan == "http" else "https"
        _open_lan(settings, scheme, json=json)
    elif json:
        print_json(link=running_server(settings).page_link())
    else:
        show_page(settings, opens=not no_open)


def show_page(settings: Settings, *, opens: bool) -> None:
    link = running_server(settings).page_link()
    print(link, flush=True)
    if opens:
        import webbrowser

        webbrowser.open(link)


def _open_lan(settings: Settings, scheme: str, *, json: bool) -> None:
    lan = running_server(settings).open_lan(scheme)
    links = [url + lan.path for url in lan.urls]
    firewall = firewall_command(lan.urls[0].rpartition("/")[2].partition(":")[0], settings.port)
    if json:
        print_json(links=links, fingerprint=lan.fingerprint, firewall=firewall)
        return
    _draw(links[0])
    print("\n".join(links), flush=True)
    say("Scan or open it on a phone in the same network. It works once, for an hour.")
    if lan.fingerprint:
        say("The browser warns, as this machine made the certificate. Before you continue, compare")
        say(f"its SHA-256: {lan.fingerprint}")
    else:
        say("Without TLS, all in this network can read along.")
    say(f"If no page appears: {firewall or f'allow TCP port {settings.port} in the firewall'}")
    if settings.lan == "off":
        say(f'It lasts until the server ends; lan = "{scheme}" in {config_path()} keeps it.')
    say("`gptoss web --lan --stop` ends it.")


def _close_lan(settings: Settings, *, json: bool) -> None:
    from gptoss_local.api.client import Client
    from gptoss_local.server.keys import read_keys, remove_key

    client, path = Client(settings), settings.keys_path
    if client.is_running():
        client.delete("/api/gptoss/lan", {})
    phones = [key.name for key in read_keys(path) if key.chats] if path.exists() else []
    for name in phones:
        remove_key(path, name)
    removed = f", and these keys are removed: {', '.join(phones)}" if phones else ""
    report(f"The local network is not let in any more{removed}.", as_json=json, removed=phones)
    if settings.lan != "off":
        say(f'lan = "{settings.lan}" is set: the next server lets it in again.')


def firewall_command(address: str, port: int) -> str:
    import psutil

    if sys.platform == "win32":
        return (
            "netsh advfirewall firewall add rule name=gptoss dir=in action=allow protocol=TCP "
            f"localport={port} profile=private"
        )
    ufw = Path("/etc/ufw/ufw.conf")
    if ufw.is_file() and "ENABLED=yes" in ufw.read_text():
        return f"sudo ufw allow proto tcp to {address} port {port}"
    if any(process.info["name"] == "firewalld" for process in psutil.process_iter(["name"])):
        return f"sudo firewall-cmd --add-port={port}/tcp"
    return ""


def _draw(link: str) -> None:
    """Draw a QR code by its light cells, two rows a line; a pipe and a screen reader get none."""
    if not sys.stderr.isatty() or is_linear():
        return
    import segno

    drawn = io.StringIO()
    segno.make_qr(link).terminal(drawn, border=4, compact=True)
    lines = drawn.getvalue().splitlines()
    if os.get_terminal_size(sys.stderr.fileno()).columns < len(lines[0]):
        say(f"A QR code needs a terminal with {len(lines[0])} columns.")
        return
    for line in lines:
        write_style(sys.stderr, "" if is_plain() else _WHITE_ON_BLACK)
        print(line, end="", file=sys.stderr)
        write_style(sys.stderr, "" if is_plain() else RESET)
        print(file=sys.stderr)
