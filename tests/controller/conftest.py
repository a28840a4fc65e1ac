"""Both databases and a real bus."""

from bus.conftest import connect
from harness.databases import kind, rig, stores
from store.conftest import shared_database, unopened

__all__ = ["connect", "kind", "rig", "shared_database", "stores", "unopened"]
