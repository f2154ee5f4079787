"""All families of slow commands, made for one worker."""

from dataclasses import dataclass

from proxy.commands.blocking.blocking import BlockingCommands
from proxy.commands.clients.accesslist import AccessList
from proxy.commands.clients.authentication import Authentication
from proxy.commands.clients.clientlist import ClientList
from proxy.commands.clients.clients import ClientCommands
from proxy.commands.clients.connection import ConnectionCommands
from proxy.commands.databases.copyandmove import CopyAndMoveCommands
from proxy.commands.family import Family
from proxy.commands.keyreads import Held
from proxy.commands.keyspace.flushing import FlushCommands
from proxy.commands.keyspace.keyspace import KeyspaceCommands
from proxy.commands.keyspace.moves import follow
from proxy.commands.keyspace.scanning import Scanning
from proxy.commands.keyspace.sorting import SortCommands
from proxy.commands.learned.learned import LearnedCommands
from proxy.commands.pubsub.pubsub import PubSubCommands
from proxy.commands.scripting.functions import FunctionCommands
from proxy.commands.scripting.intransactions import CodeInTransactions
from proxy.commands.scripting.scriptcalls import ScriptCalls
from proxy.commands.scripting.scripts import ScriptCommands
from proxy.commands.server.cluster import ClusterCommands
from proxy.commands.server.configuration import ConfigurationCommands
from proxy.commands.server.information import Information
from proxy.commands.server.latency import LatencyCommands
from proxy.commands.server.server import ServerCommands
from proxy.commands.serverversions import ServerVersions
from proxy.commands.services import Services
from proxy.commands.sets.setcommands import SetCommands
from proxy.commands.tracking.tracking import TrackingCommands
from proxy.commands.transactions.transactions import TransactionCommands


@dataclass(frozen=True)
class Families:
    """The families; those that the front door knows by name come first."""

    transactions: TransactionCommands
    permissions: Authentication
    learned: LearnedCommands
    all: tuple[Family, ...]


def make(services: Services) -> Families:
    """The families of a worker."""
    versions = ServerVersions(services)
    scripts = ScriptCommands(services)
    authentication = Authentication(services, versions, ScriptCalls(scripts.scripts.body))
    connection = ConnectionCommands(services, authentication.begin)
    server: list[Family] = [
        ClientCommands(),
        ClientList(services),
        ServerCommands(services, versions),
        ConfigurationCommands(services),
        Information(services, versions),
        LatencyCommands(services),
    ]
    moves = follow(services)
    keyspace = KeyspaceCommands(services, moves)
    flushing = FlushCommands(services, moves)
    scanning = Scanning(services, moves)
    cluster = ClusterCommands(services)
    functions = FunctionCommands(services)
    pubsub = PubSubCommands(services, versions)
    tracking = TrackingCommands(services, versions)
    held = Held()
    blocking = BlockingCommands(services, versions, held)
    learned = LearnedCommands(services)
    acl = AccessList(authentication, learned.find)
    copying = CopyAndMoveCommands(services, authentication.select_refusal)
    sorting = SortCommands(services)
    sets = SetCommands(services, versions, held)
    transactions = TransactionCommands(services, authentication, CodeInTransactions(scripts, functions))
    return Families(
        transactions,
        authentication,
        learned,
        (
            *(authentication, connection, *server, keyspace, flushing, scanning, scripts, functions, pubsub, tracking),
            *(acl, blocking, copying, sorting, sets, transactions, learned, cluster, versions),
        ),
    )
