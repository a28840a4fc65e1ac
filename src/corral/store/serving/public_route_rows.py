"""Rows of `public_routes`, for transactions that read other rows too."""

import msgspec

from corral.core.replicas.public_routes import PublicRoute, RouteTarget
from corral.store.engine.database import Row, Tx


class _Target(msgspec.Struct, frozen=True):
    model: str
    weight: int = 1


_decode_tiers = msgspec.json.Decoder(list[list[_Target]]).decode


def encode_tiers(route: PublicRoute) -> str:
    return msgspec.json.encode([[_Target(one.model, one.weight) for one in tier] for tier in route.tiers]).decode()


def route_of(row: Row) -> PublicRoute:
    tiers = _decode_tiers(row["tiers"])
    return PublicRoute(
        name=row["name"],
        tiers=tuple(tuple(RouteTarget(one.model, one.weight) for one in tier) for tier in tiers),
        is_sticky=bool(row["sticky"]),
    )


async def read_public_routes(tx: Tx) -> list[PublicRoute]:
    return [route_of(row) for row in await tx.fetch("SELECT * FROM public_routes ORDER BY name")]
