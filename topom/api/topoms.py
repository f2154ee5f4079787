"""The topoms over one store: the leader and the followers."""

from fastapi import Request, Response

from slots.version import program_version
from topom.api import topom_models as models
from topom.api.routers import resource
from topom.errors import NotLeading
from topom.term.node import Node
from topom.term.roster import Follower

router = resource("/topoms", "topoms")


def describe(node: Node | None) -> list[models.TopomShown]:
    """Every topom that is known here, the leader first; none if topom does not share its store."""
    if node is None or not node.shared:
        return []
    leader = node.leader
    shown = []
    if leader is not None:
        shown.append(models.TopomShown(instance=leader.instance, url=leader.url, state="leads", term=leader.term))
    if node.leading is None:
        # Only the leader knows the others.
        topom = node.serving
        shown.append(
            models.TopomShown(
                instance=node.instance,
                url=node.url,
                state="follows",
                epoch=topom.ledger.table.epoch,
                version=program_version(),
                reason=node.reason,
            )
        )
        return shown
    shown[0].epoch, shown[0].version = node.leading.ledger.table.epoch, program_version()
    shown[0].reason = node.unfit.get("misplaced")
    for follower, silent_since in node.roster.followers():
        if follower.instance != node.instance and follower.url != node.url:
            shown.append(
                models.TopomShown(
                    instance=follower.instance,
                    url=follower.url,
                    state="follows" if silent_since is None else "silent",
                    silent_since=silent_since,
                    epoch=follower.epoch,
                    version=follower.version,
                )
            )
    return shown


@router.get("")
async def list_topoms(request: Request) -> models.Topoms:
    """The leader and the followers."""
    return models.Topoms(topoms=describe(request.app.state.node))


@router.post("", status_code=204)
async def announce(request: Request, follower: models.TopomAnnounced) -> Response:
    """A follower tells of itself; other clients have no use for this."""
    node: Node | None = request.app.state.node
    if node is None or node.leading is None:
        raise NotLeading("this topom does not lead")
    node.roster.hear(Follower(follower.instance, follower.url, follower.version, follower.epoch))
    return Response(status_code=204)
