"""The platform of this machine, as image indexes name it."""

import platform

from corral.artifacts.oci.image import OciPlatform

_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "armv7l": "arm"}


def this_platform() -> OciPlatform:
    machine = platform.machine().lower()
    variant = {"aarch64": "v8", "arm64": "v8", "armv7l": "v7"}.get(machine, "")
    return OciPlatform(os=platform.system().lower(), architecture=_ARCHITECTURES.get(machine, machine), variant=variant)
