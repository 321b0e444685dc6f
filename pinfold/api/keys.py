"""Keys and certificates: made, and their fingerprints.

Loaded when the first keypair is made: what it needs stays out of the memory of an API that makes none.
"""

from __future__ import annotations

import base64
import hashlib

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pinfold.model import errors

_BITS = 2048


def generated(type_: str) -> tuple[str, str]:
    """A new private key and its public key."""
    if type_ != "ssh":
        raise errors.InvalidRequest(
            f"Keypair data is invalid: public_key must be given for type {type_}.", code="invalid-keypair"
        )
    key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), f"{public.decode()} Generated-by-Pinfold"


def fingerprint(type_: str, public: str) -> str:
    """MD5 of an SSH key, SHA-1 of a certificate: what their tools show. Raises InvalidRequest for what is none."""
    try:
        if type_ == "x509":
            digest = x509.load_pem_x509_certificate(public.encode()).fingerprint(hashes.SHA1())
        else:
            serialization.load_ssh_public_key(public.encode())
            blob = base64.b64decode(public.split()[1])
            digest = hashlib.md5(blob, usedforsecurity=False).digest()
    except (ValueError, TypeError, IndexError, UnsupportedAlgorithm) as error:
        raise errors.InvalidRequest(
            "Keypair data is invalid: failed to generate fingerprint of public_key", code="invalid-keypair"
        ) from error
    return ":".join(f"{byte:02x}" for byte in digest)
