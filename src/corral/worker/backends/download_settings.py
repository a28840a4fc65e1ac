"""Download settings of a worker, also used by `corral artifacts` on its machine."""

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from corral.artifacts.host_settings import settings_from_environment, with_sources
from corral.artifacts.settings import ArtifactSettings, S3Settings
from corral.settings.roles import WorkerSettings


def artifact_settings(settings: WorkerSettings, environment: Mapping[str, str]) -> ArtifactSettings:
    """`s3://` refers to the shared storage, which may have a private address because an administrator configured it."""
    found = with_sources(settings_from_environment(settings.data_dir, environment), settings)
    storage = storage_keys(settings)
    named = urlsplit(storage.endpoint) if storage is not None else None
    plain = {named.netloc.lower()} if named is not None and named.scheme == "http" else frozenset()
    return replace(
        found,
        network=replace(found.network, plain_http_hosts=found.network.plain_http_hosts | plain),
        s3=storage or found.s3,
        transfer=replace(found.transfer, bandwidth_bytes_per_s=settings.download_rate_bytes),
        keep_versions=settings.keep_versions,
    )


def storage_keys(settings: WorkerSettings) -> S3Settings | None:
    if settings.storage_url is None:
        return None
    access, secret = settings.storage_access_key, settings.storage_secret_key
    return S3Settings(
        endpoint=settings.storage_url.rstrip("/"),
        region=settings.storage_region,
        access_key=access.get_secret_value() if access is not None else "",
        secret_key=secret.get_secret_value() if secret is not None else "",
    )
