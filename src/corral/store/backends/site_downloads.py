"""Which node of a site fetches which blob. Granted by the store, so that all frontends agree."""

from collections.abc import Collection, Sequence

from corral.core.backends.site_downloads import (
    DONE_S,
    Alone,
    Answer,
    DownloadClaim,
    Follow,
    Lead,
    SiteDownload,
    Try,
    decide_claim,
)
from corral.store.engine.database import Database, Row, Tx

_AGES = "now_ms() - granted_at AS granted, now_ms() - renewed_at AS renewed, now_ms() - progressed_at AS progressed"
_AGES += ", now_ms() - tried_at AS tried"
_READ = (
    f"SELECT node_id, state, displaced, bytes_done, bytes_at_start, {_AGES} FROM site_downloads"  # noqa: S608
    " WHERE site = $1 AND digest = $2"
)


ROWS_MOST = 2048
"""Of one node. It fetches further blobs for itself until earlier rows have expired."""


class SiteDownloadStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(
        self, site: str, node: str, claims: Sequence[DownloadClaim], *, serving: Collection[str]
    ) -> list[Answer]:
        """The answers in the order of the claims. `serving`: the nodes that can serve blobs."""

        async def look(tx: Tx) -> list[Answer]:
            found = [await _read(tx, site, claim.digest) for claim in claims]
            return [_decide(one, claim, node, serving) for one, claim in zip(found, claims, strict=True)]

        async def body(tx: Tx) -> list[Answer]:
            answers: dict[str, Answer] = {}
            for claim in sorted(claims, key=lambda one: one.digest):  # one order of locks for all
                found = await _read(tx, site, claim.digest, lock=True)
                answers[claim.digest] = await _apply(tx, site, node, found, claim, serving)
            await tx.execute("DELETE FROM site_downloads WHERE renewed_at < now_ms() - $1", int(DONE_S * 1000))
            return [answers[claim.digest] for claim in claims]

        if not any(map(_tells, claims)):
            answers = await self._database.read(look)
            if not any(isinstance(answer, Lead | Try) for answer in answers):
                return answers
        return await self._database.write(body)


def _tells(claim: DownloadClaim) -> bool:
    return claim.is_done or claim.has_failed or claim.releases


def _decide(found: SiteDownload | None, claim: DownloadClaim, node: str, serving: Collection[str]) -> Answer:
    return decide_claim(found, claim, node=node, serves=found is not None and found.node in serving)


async def _read(tx: Tx, site: str, digest: str, *, lock: bool = False) -> SiteDownload | None:
    row = await tx.fetch_one(_READ + (" FOR UPDATE" if lock else ""), site, digest)
    return _download(row) if row is not None else None


def _download(row: Row) -> SiteDownload:
    return SiteDownload(
        node=row["node_id"],
        bytes_done=row["bytes_done"],
        bytes_at_start=row["bytes_at_start"],
        granted_s=row["granted"] / 1000,
        renewed_s=row["renewed"] / 1000,
        progressed_s=row["progressed"] / 1000,
        is_done=row["state"] == "done",
        has_failed=row["state"] == "failed",
        displaced=row["displaced"],
        tried_s=row["tried"] / 1000 if row["tried"] is not None else None,
    )


async def _apply(
    tx: Tx, site: str, node: str, found: SiteDownload | None, claim: DownloadClaim, serving: Collection[str]
) -> Answer:
    is_own = found is not None and found.node == node
    if claim.releases:
        if is_own:
            await tx.execute("DELETE FROM site_downloads WHERE site = $1 AND digest = $2", site, claim.digest)
        return Alone()
    if claim.has_failed:
        if is_own:
            await tx.execute(
                "UPDATE site_downloads SET state = 'failed', renewed_at = now_ms() WHERE site = $1 AND digest = $2",
                site,
                claim.digest,
            )
        return Alone()
    answer = _decide(found, claim, node, serving)
    if isinstance(answer, Try):
        await tx.execute(
            "UPDATE site_downloads SET tried_at = now_ms() WHERE site = $1 AND digest = $2", site, claim.digest
        )
    if not isinstance(answer, Lead):
        return answer
    continues = is_own and found is not None and not found.is_done and not found.has_failed
    values = (site, claim.digest, node, claim.bytes_done, int(claim.is_done))
    if continues:
        await tx.execute(_RENEW, *values)
        return answer
    held = await tx.fetch_one("SELECT count(*) AS held FROM site_downloads WHERE node_id = $1", node)
    if held is not None and held["held"] >= ROWS_MOST and not is_own:
        return Alone()
    await tx.execute(_GRANT, *values, found.node if found is not None else "")
    # Of two nodes that ask at once for a blob without a row, the later one changes nothing.
    now = await _read(tx, site, claim.digest)
    return answer if now is None or now.node == node else Follow(now.node)


_STATE = "CASE WHEN $5 = 1 THEN 'done' ELSE 'leading' END"
_RENEW = f"""UPDATE site_downloads SET state = {_STATE}, renewed_at = now_ms(),
 progressed_at = CASE WHEN bytes_done < $4 OR $5 = 1 THEN now_ms() ELSE progressed_at END, bytes_done = $4
 WHERE site = $1 AND digest = $2 AND node_id = $3"""  # noqa: S608
_GRANT = f"""INSERT INTO site_downloads
 (site, digest, node_id, state, bytes_done, bytes_at_start, granted_at, renewed_at, progressed_at, displaced)
 VALUES ($1, $2, $3, {_STATE}, $4, $4, now_ms(), now_ms(), now_ms(), $6)
 ON CONFLICT (site, digest) DO UPDATE SET node_id = excluded.node_id, state = excluded.state,
 bytes_done = excluded.bytes_done, bytes_at_start = excluded.bytes_at_start, granted_at = excluded.granted_at,
 renewed_at = excluded.renewed_at, progressed_at = excluded.progressed_at, displaced = excluded.displaced,
 tried_at = NULL
 WHERE site_downloads.node_id = $6"""  # noqa: S608
