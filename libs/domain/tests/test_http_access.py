"""Which addresses http steps and webhooks may connect to."""

import pytest

from toban_domain.http_access import denial, kind_of, parse_access


@pytest.mark.parametrize(
    ("allow", "host", "address", "port", "words"),
    [
        ("public", "a.example", "93.184.216.34", 443, ""),
        ("public", "a.example", "2606:2800:220:1::1", 443, ""),
        ("public", "a.example", "10.0.0.1", 443, "private address 10.0.0.1"),
        ("public", "a.example", "100.64.0.1", 443, "private address"),
        ("public", "a.example", "fc00::1", 443, "private address"),
        ("public", "a.example", "192.0.2.1", 443, "reserved address"),
        ("public", "a.example", "224.0.0.1", 443, "multicast address"),
        ("public", "a.example", "::", 443, "reserved address"),
        ("public", "a.example", "fe80::1%eth0", 443, "link-local address"),
        ("public", "a.example", "168.63.129.16", 80, "metadata service"),
        ("public", "a.example", "::ffff:10.0.0.1", 80, "private address ::ffff:a00:1, which means 10.0.0.1"),
        ("public", "a.example", "64:ff9b::7f00:1", 80, "loopback address"),
        ("public", "a.example", "64:ff9b::5db8:d822", 80, ""),
        ("public", "a.example", "2002:7f00:1::", 80, "reserved address"),
        ("2002::/16", "a.example", "2002:7f00:1::", 80, "loopback address 2002:7f00:1::, which means 127.0.0.1"),
        ("::/0", "a.example", "64:ff9b:1::a9fe:a9fe", 80, "metadata service"),
        ("::/0", "a.example", "::7f00:1", 80, "loopback address"),
        ("::/0", "a.example", "::ffff:0:127.0.0.1", 80, "loopback address"),
        ("::/0", "a.example", "::1", 80, ""),
        ("0.0.0.0/0", "a.example", "127.0.0.1", 80, ""),
        ("0.0.0.0/0", "a.example", "169.254.169.254", 80, "metadata service"),
        ("169.254.169.254", "a.example", "169.254.169.254", 80, ""),
        ("169.254.169.254", "a.example", "::ffff:169.254.169.254", 80, ""),
        ("10.0.0.0/8", "a.example", "93.184.216.34", 80, "public address 93.184.216.34"),
        ("a.example", "a.example", "10.0.0.1", 80, ""),
        ("A.example", "a.example", "93.184.216.34", 80, ""),
        ("a.example", "b.example", "93.184.216.34", 80, "public address"),
        ("a.example", "x.a.example", "93.184.216.34", 80, "public address"),
        ("*.a.example", "x.a.example", "10.0.0.1", 80, ""),
        ("*.a.example", "a.example", "10.0.0.1", 80, "private address"),
        ("*.a.example", "xa.example", "10.0.0.1", 80, "private address"),
        ("a.example", "a.example", "127.0.0.1", 80, "loopback address"),
        ("a.example", "a.example", "169.254.169.254", 80, "metadata service"),
        ("a.example", "a.example", "fd00:ec2::254", 80, "metadata service"),
        ("localhost,127.0.0.1:8080", "localhost", "127.0.0.1", 8080, ""),
        ("127.0.0.1:8080", "localhost", "127.0.0.1", 80, "'localhost' port 80 is the loopback address 127.0.0.1"),
        ("[::1]:8080", "localhost", "::1", 8080, ""),
        ("[::1]:8080", "localhost", "::1", 80, "loopback address"),
        ("a.example:443", "a.example", "10.0.0.1", 80, "private address"),
        ("none", "a.example", "93.184.216.34", 443, "SCHEDULER_LIST has no entry for it"),
    ],
)
def test_addresses(allow: str, host: str, address: str, port: int, words: str) -> None:
    found = denial(parse_access(allow), host=host, address=address, port=port, setting="SCHEDULER_LIST")
    assert words in found if words else found == ""


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("10.0.0.1/8", "has host bits set; write a network as 10.0.0.0/8"),
        ("10.0.0.0/33", "write a network"),
        ("https://a.example", "is neither a host name, an address nor a network"),
        ("a b", "is neither"),
        ("*", "is neither"),
        ("127.1", "is neither"),
        ("a.example:0", "has no port from 1 to 65535"),
        ("a.example:70000", "has no port from 1 to 65535"),
    ],
)
def test_entries_that_mean_nothing(entry: str, words: str) -> None:
    with pytest.raises(ValueError, match="'") as caught:
        parse_access(f"public,{entry}")
    assert repr(entry) in str(caught.value) and words in str(caught.value)


def test_metadata_services_are_found_in_every_range() -> None:
    from ipaddress import ip_address

    for text in ("169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"):
        assert kind_of(ip_address(text)) == "metadata"
