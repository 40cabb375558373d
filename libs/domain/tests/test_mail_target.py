"""URLs of mail servers."""

import pytest

from toban_domain.mail_target import MailTarget, is_mail, parse_mail

ADDRESSES = "from=toban@example.com&to=ops@example.com"


def test_a_whole_url() -> None:
    url = f"smtps://ops%40example.com:p%2Fw@Mail.example.com:2465/?{ADDRESSES}&to=on-call%2Bdb@example.com"
    assert parse_mail(url) == MailTarget(
        tls=True,
        host="mail.example.com",
        port=2465,
        sender="toban@example.com",
        recipients=("ops@example.com", "on-call+db@example.com"),
        user="ops@example.com",
        password="p/w",
    )
    assert "p/w" not in repr(parse_mail(url))


def test_what_may_be_left_out() -> None:
    plain = parse_mail(f"smtp://mail.example.com?{ADDRESSES}")
    assert (plain.tls, plain.port, plain.user, plain.origin) == (False, 587, "", "smtp://mail.example.com:587")
    assert parse_mail(f"smtps://[2001:db8::1]/?{ADDRESSES}").origin == "smtps://[2001:db8::1]:465"
    assert is_mail("SMTP://x") and not is_mail("https://smtp.example.com")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"smtp://?{ADDRESSES}", "no host name"),
        (f"smtp://mail.example.com:99999/?{ADDRESSES}", "not a URL"),
        ("smtp://mail.example.com/", "one `from` and 1 to 20 `to`"),
        ("smtp://mail.example.com/?from=a@b.c", "one `from` and 1 to 20 `to`"),
        (f"smtp://mail.example.com/?{ADDRESSES}&from=x@example.com", "one `from`"),
        ("smtp://mail.example.com/?from=a@b.c&" + "&".join(f"to=a{n}@b.c" for n in range(21)), "1 to 20 `to`"),
        (f"smtp://mail.example.com/?{ADDRESSES}&bcc=a@b.c", "nothing else"),
        (f"smtp://mail.example.com/path?{ADDRESSES}", "nothing else"),
        ("smtp://mail.example.com/?from=a@b.c&to=a%0d%0aBcc:x@b.c", "no mail address"),
        ("smtp://mail.example.com/?from=a@b.c&to=a%2Cb@b.c", "no mail address"),
        ("smtp://mail.example.com/?from=a@b.c&to=ops", "no mail address"),
        (f"smtp://user@mail.example.com/?{ADDRESSES}", "without a password"),
        (f"smtp://mail.example.com/ ?{ADDRESSES}", "a space"),
        (f"smtp://user:p%C3%BC@mail.example.com/?{ADDRESSES}", "not printable ASCII"),
        (f"smtp://us%0D%0Aer:p@mail.example.com/?{ADDRESSES}", "not printable ASCII"),
        (f"smtp://user:p%00@mail.example.com/?{ADDRESSES}", "not printable ASCII"),
    ],
)
def test_what_is_refused(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        parse_mail(url)
    assert "ü" not in str(caught.value)
