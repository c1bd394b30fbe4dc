"""At which address a worker is found: real interfaces of this machine."""

import socket

import psutil
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.cluster.dynamo.address import LOOPBACK, own_address, variables

pytestmark = pytest.mark.quick

INTERFACES = {
    interface: [each.address for each in found if each.family == socket.AF_INET]
    for interface, found in psutil.net_if_addrs().items()
}


def test_an_interface_stands_for_its_address() -> None:
    found = {interface: own_address(interface) for interface, has in INTERFACES.items() if has}
    assert found == {interface: has[0] for interface, has in INTERFACES.items() if has}
    assert LOOPBACK in found.values()


def test_an_address_stays() -> None:
    for address in (address for found in INTERFACES.values() for address in found):
        assert own_address(address) == address


@pytest.mark.parametrize("host", ["0.0.0.0", "203.0.113.9", "no-such-interface", "localhost", ""])
def test_what_this_machine_does_not_have_is_refused(host: str) -> None:
    """All addresses, too: a frontend elsewhere would connect to itself."""
    with pytest.raises(UsageError, match="neither an IPv4 address nor") as raised:
        own_address(host)
    assert f"{LOOPBACK} (" in raised.value.hint


def test_others_read_the_vocabulary_at_an_address_that_they_reach() -> None:
    alone, elsewhere = variables(LOOPBACK), variables("203.0.113.9")
    assert set(alone.values()) == {LOOPBACK}
    assert elsewhere.pop("DYN_SYSTEM_PORT") == "0"
    assert elsewhere == dict.fromkeys(alone, "203.0.113.9")
