"""Fetches, verifies and stores backends and weights on this machine.

    async with Artifacts(ArtifactSettings(data_dir=...), clock=clock, ids=ids) as artifacts:
        catalogue = await artifacts.read_catalogue()
        request = artifacts.request_for(catalogue, "llama-cpp", capability)      # or BackendRequest(name=, uris=)
        version = await artifacts.install(request, on_progress=show, cancel=token)
        command = plan_start(version.manifest, version.path, StartRequest(host=, port=, model=))

The worker uses `install`, `list_backends`, `current`, `rollback`, `remove`, `collect_garbage` and `find_blob`; the
frontend uses `read_catalogue` with `Catalogue.resolve_for_nodes`, `inspect` for digests, `read_models` and
`install_files`. `CancelToken.cancel()` is a user's cancel and discards what was fetched. Cancelling the
task, or leaving the `async with`, keeps it for the next start.
"""

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.manifest import (
    LOCALAI_LAUNCHER,
    Manifest,
    ReadinessProbe,
    StartCommand,
    StartRequest,
    Trial,
    fill_trial,
    plan_start,
)
from corral.artifacts.content.pieces import ResolvedArtifact
from corral.artifacts.content.verify import Verified
from corral.artifacts.content.versions import InstalledBackend, InstalledVersion, Metadata
from corral.artifacts.galleries.catalogue import (
    LOCALAI_BACKENDS,
    LOCALAI_MODELS,
    Catalogue,
    GalleryStatus,
    ModelCatalogue,
)
from corral.artifacts.galleries.entries import BackendEntry, ModelEntry, ResolvedModel
from corral.artifacts.install.gc import Freed
from corral.artifacts.install.weights import KeptFile, PlacedFile
from corral.artifacts.progress import Phase
from corral.artifacts.requests import BackendRequest, ModelFile
from corral.artifacts.service import Artifacts, Swept
from corral.artifacts.settings import ArtifactSettings
from corral.artifacts.signatures import SignaturePolicy

__all__ = [
    "LOCALAI_BACKENDS",
    "LOCALAI_LAUNCHER",
    "LOCALAI_MODELS",
    "ArtifactSettings",
    "Artifacts",
    "BackendEntry",
    "BackendRequest",
    "CancelToken",
    "Catalogue",
    "Freed",
    "GalleryStatus",
    "InstalledBackend",
    "InstalledVersion",
    "KeptFile",
    "Manifest",
    "Metadata",
    "ModelCatalogue",
    "ModelEntry",
    "ModelFile",
    "Phase",
    "PlacedFile",
    "ReadinessProbe",
    "ResolvedArtifact",
    "ResolvedModel",
    "SignaturePolicy",
    "StartCommand",
    "StartRequest",
    "Swept",
    "Trial",
    "Verified",
    "fill_trial",
    "plan_start",
]
