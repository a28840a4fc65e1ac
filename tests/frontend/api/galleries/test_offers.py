"""What a name means on the nodes, when several galleries have it."""

from core.backends.test_drift import machine
from corral.artifacts.galleries.catalogue import Catalogue
from corral.artifacts.galleries.entries import parse_backends
from corral.frontend.api.galleries.offers import Families, Offers

SLOW = b"- {name: a, capabilities: {default: cpu-a}}\n- {name: cpu-a, uri: registry.example/cpu-a}\n"
FAST = b"- {name: a, capabilities: {amd: rocm-a}}\n- {name: rocm-a, uri: registry.example/rocm-a}\n"


def test_a_name_shows_the_build_of_the_gallery_that_a_node_would_use_and_an_entry_its_own() -> None:
    entries = (*parse_backends(SLOW, gallery="one"), *parse_backends(FAST, gallery="two"))
    catalogue = Catalogue(entries=entries, galleries=())
    offers = Offers(catalogue, Families(entries), [machine(capability="amd")], {})
    entry = catalogue.find("a")
    assert [one.variant for one in offers.show(entry, "a").variants] == ["rocm-a"]
    assert [one.variant for one in offers.show(entry, "one@a").variants] == ["cpu-a"]
    assert [one.variant for one in offers.show(entry).variants] == ["cpu-a"]
