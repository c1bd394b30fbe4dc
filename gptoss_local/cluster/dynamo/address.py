import socket

import psutil

from gptoss_local.base.errors import UsageError

LOOPBACK = "127.0.0.1"


def own_address(host: str) -> str:
    """Return an IPv4 address of this machine: `host` itself, or the interface's.

    Dynamo knows interfaces for some of its variables only, and advertises 0.0.0.0 as it is.
    """
    addresses = {
        address.address: interface
        for interface, found in psutil.net_if_addrs().items()
        for address in found
        if address.family == socket.AF_INET
    }
    for address, interface in addresses.items():
        if host in (address, interface):
            return address
    listed = ", ".join(f"{address} ({interface})" for address, interface in addresses.items())
    raise UsageError(
        f"{host} is neither an IPv4 address nor a network interface of this machine",
        hint=f"It has {listed}.",
    )


def variables(address: str) -> dict[str, str]:
    """Return Dynamo's variables for a worker, whose vocabulary frontends read at a free port."""
    hosts = dict.fromkeys(("DYN_TCP_RPC_HOST", "DYN_EVENT_PLANE_HOST", "DYN_SYSTEM_HOST"), address)
    return hosts if address == LOOPBACK else hosts | {"DYN_SYSTEM_PORT": "0"}
