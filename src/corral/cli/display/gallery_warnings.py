"""What a list lacks because a gallery could not be read is told beside it."""

from typing import Any

import click

from corral.cli.client.api import clean
from corral.core.durations import format_age


def warn_of_galleries(galleries: list[dict[str, Any]]) -> bool:
    """Whether there was anything to warn of."""
    troubled = [gallery for gallery in galleries if gallery["problem"]]
    for gallery in troubled:
        copy = f"shown from a copy {format_age(gallery['age_s'])} old"
        kept = copy if gallery["entries"] else "nothing is known of it"
        click.echo(f"corral: gallery {gallery['name']}: {clean(gallery['problem'])} ({kept})", err=True)
    return bool(troubled)
