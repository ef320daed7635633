"""Refusing servers outside this machine and private networks, so that no patient's text or image leaves them."""

import socket
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from cxr.base.errors import UserError

HERE = tuple(
    map(
        ip_network,
        (
            "127.0.0.0/8", "0.0.0.0/32", "::1/128", "::/128",  # this machine
            "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7",  # RFC 1918, RFC 4193
            "100.64.0.0/10", "169.254.0.0/16", "fe80::/10",  # RFC 6598, RFC 3927, RFC 4291
        ),
    )
)  # fmt: skip
"""Networks that routers do not forward to the Internet."""


def refuse_remote(key: str, address: str, allow: str) -> None:
    """Raise UserError unless every IP address of a server's host is in :data:`HERE`.

    ``key``: the setting of the ``address`` (a URL); ``allow``: the setting that permits a server elsewhere.
    """
    host = urlsplit(address).hostname or ""
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)} if host else set()
    except (OSError, UnicodeError):
        addresses = set()
    if not addresses:
        raise UserError(f"{key}: {address} does not answer (no such host): start it, or correct the address")
    if not all(map(is_here, addresses)):
        raise UserError(
            f"{key}: {address} is outside this machine and its private network, so no text or picture of a patient is "
            f"sent there: choose a server inside, or set {allow} to true if that server may have them"
        )


def is_here(number: str) -> bool:
    """Tell whether an IP address belongs to this machine or a private network."""
    ip = ip_address(number)
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return any(ip in network for network in HERE)
