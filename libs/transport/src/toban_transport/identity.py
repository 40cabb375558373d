"""What a certificate says about its owner, read by ourselves (for tickets; calls use what gRPC verified)."""

from cryptography import x509


def spiffe_ids(certificate: x509.Certificate) -> tuple[str, ...]:
    """Every URI among the subject's alternative names: exactly one makes an identity."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(names.get_values_for_type(x509.UniformResourceIdentifier))


def dns_name(service: str, trust_domain: str) -> str:
    """The one DNS name in a service's certificate, which clients pin; of `executor/<group>` it is `<group>.executor.<trust domain>`."""
    service, _, group = service.partition("/")
    return f"{group}.{service}.{trust_domain}" if group else f"{service}.{trust_domain}"
