"""Errors of the artifact library.

CorralError
└── ArtifactError
    ├── BadReference           (InvalidInput)   a location of an unknown form; lists the known forms
    ├── BadGallery             (InvalidInput)   an index that is malformed or hostile
    ├── BadManifest            (InvalidInput)   an invalid start description
    ├── NoVariantFits          (InvalidInput)   no entry for this capability
    ├── NoPlatformFits         (InvalidInput)   the image has no build for this os and architecture
    ├── PolicyRefused          (Forbidden)      rejected by an address, scheme, redirect or signature rule
    │   └── SignatureRefused                    no signature by a trusted key
    ├── SourceRejected         (NotFound)       the server rejected the request: 401, 403, 404
    ├── SourceUnavailable      (Unavailable)    transient; a retry may help
    │   └── Stalled                             connected, but too few bytes in the stall window
    ├── DigestMismatch         (Unavailable)    the bytes do not match their digest
    ├── UnsafeArchive          (InvalidInput)   a member that would leave the root, a device, ...
    │   └── BudgetExceeded                      too many bytes, members, seconds or too high a ratio
    ├── BuildFailed            (InvalidInput)   a source package that could not be built; has the last output
    ├── DiskFull               (Unavailable)    this one artifact does not fit
    │   └── UnpackedTooLarge                    by what its archive unpacks to
    ├── DiskFault              (Unavailable)    read-only, input/output error, no inodes
    ├── VersionInUse           (Conflict)       a process still runs from it
    ├── NotInstalled           (NotFound)
    └── Cancelled                               cancelled by a user or a shutdown
"""

import errno

from corral.core.errors import Conflict, CorralError, Forbidden, InvalidInput, NotFound, Unavailable


class ArtifactError(CorralError):
    code = "artifact_failed"


class BadReference(ArtifactError, InvalidInput):
    code = "bad_reference"


class BadGallery(ArtifactError, InvalidInput):
    code = "bad_gallery"


class BadManifest(ArtifactError, InvalidInput):
    code = "bad_manifest"


class NoVariantFits(ArtifactError, InvalidInput):
    code = "no_variant_fits"


class NoPlatformFits(ArtifactError, InvalidInput):
    code = "no_platform_fits"


class PolicyRefused(ArtifactError, Forbidden):
    code = "policy_refused"


class SignatureRefused(PolicyRefused):
    code = "signature_refused"


class SourceRejected(ArtifactError, NotFound):
    code = "source_rejected"

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class SourceUnavailable(ArtifactError, Unavailable):
    code = "source_unavailable"

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Stalled(SourceUnavailable):
    code = "source_stalled"


class DigestMismatch(ArtifactError, Unavailable):
    code = "digest_mismatch"

    def __init__(self, message: str, *, from_nodes: bool = False, from_sources: bool = False) -> None:
        """Where the wrong bytes may be from: another node, a source of the blob, or both."""
        super().__init__(message)
        self.from_nodes, self.from_sources = from_nodes, from_sources


class UnsafeArchive(ArtifactError, InvalidInput):
    code = "unsafe_archive"


class BudgetExceeded(UnsafeArchive):
    code = "archive_over_budget"


class BuildFailed(ArtifactError, InvalidInput):
    code = "build_failed"


class DiskFull(ArtifactError, Unavailable):
    code = "disk_full"


class UnpackedTooLarge(DiskFull):
    pass


class DiskFault(ArtifactError, Unavailable):
    code = "disk_fault"


class VersionInUse(ArtifactError, Conflict):
    code = "version_in_use"


class NotInstalled(ArtifactError, NotFound):
    code = "not_installed"


class Cancelled(ArtifactError):
    code = "cancelled"

    def __init__(self, message: str, *, keep_partials: bool) -> None:
        super().__init__(message)
        self.keep_partials = keep_partials


_FULL = {errno.ENOSPC, errno.EDQUOT}
_FAULT = {errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EPERM}


class disk_errors:
    """Turns a filesystem error into an error that states what to do."""

    __slots__ = ("_doing",)

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError):
            return
        if error.errno in _FULL:
            raise DiskFull(
                f"The disk (or its inode table) is full while {self._doing}. Free some space, for example with"
                " `corral artifacts prune`, and try again."
            ) from error
        if error.errno in _FAULT:
            raise DiskFault(f"The filesystem reported an error ({error.strerror}) while {self._doing}.") from error
