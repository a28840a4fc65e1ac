"""A frontend's wish on its way to the installer: nothing it asks for gets lost."""

import json

from corral.artifacts import BackendRequest, SignaturePolicy
from corral.bus.messages import CommandExtras
from corral.core.backends.build import BuildRef
from corral.worker.backends.requests import read_galleries, with_extras


def test_a_gallerys_wish_for_signatures_is_read() -> None:
    galleries = read_galleries(
        json.dumps(
            [
                {"name": "open", "url": "https://a.example.org"},
                {"name": "empty", "url": "https://b.example.org", "verification": {}},
                {"name": "key", "url": "https://c.example.org", "verification": {"public_key": "PEM"}},
                {"name": "keyless", "url": "https://d.example.org", "verification": {"issuer": "x", "identity": "y"}},
            ]
        )
    )
    assert galleries is not None
    assert [gallery.verification for gallery in galleries] == [
        None,
        None,
        SignaturePolicy(public_keys=("PEM",)),
        SignaturePolicy(unsupported=("identity", "issuer")),
    ]


def test_what_a_command_adds_takes_nothing_away() -> None:
    policy = SignaturePolicy(public_keys=("PEM",))
    request = BackendRequest(build=BuildRef(name="a", uris=("quay.io/x/a",)), signatures=policy)
    changed = with_extras(request, CommandExtras(build=BuildRef(version="2")))
    assert (changed.build, changed.signatures) == (BuildRef(name="a", uris=("quay.io/x/a",), version="2"), policy)
