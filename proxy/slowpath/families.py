"""All families of slow commands, made for one worker."""

from dataclasses import dataclass

from proxy.slowpath.authentication import Authentication
from proxy.slowpath.blocking import BlockingCommands
from proxy.slowpath.clientlist import ClientList
from proxy.slowpath.clients import ClientCommands
from proxy.slowpath.cluster import ClusterCommands
from proxy.slowpath.configuration import ConfigurationCommands
from proxy.slowpath.connection import ConnectionCommands
from proxy.slowpath.crossing import CrossingCommands
from proxy.slowpath.debugging import DebugCommand
from proxy.slowpath.family import Family
from proxy.slowpath.flushing import FlushCommands
from proxy.slowpath.functions import FunctionCommands
from proxy.slowpath.information import Information
from proxy.slowpath.keyspace import KeyspaceCommands
from proxy.slowpath.learned import LearnedCommands
from proxy.slowpath.measured import MeasuredCommands
from proxy.slowpath.moves import follow
from proxy.slowpath.oldservers import OldServers
from proxy.slowpath.preparing import Preparation
from proxy.slowpath.pubsub import PubSubCommands
from proxy.slowpath.scanning import Scanning
from proxy.slowpath.scripts import ScriptCommands
from proxy.slowpath.server import ServerCommands
from proxy.slowpath.services import Services
from proxy.slowpath.sorting import SortCommands
from proxy.slowpath.transactions import TransactionCommands


@dataclass(frozen=True)
class Families:
    """The families; those that the front door knows by name come first."""

    transactions: TransactionCommands
    permissions: Authentication
    learned: LearnedCommands
    all: tuple[Family, ...]


def make(services: Services) -> Families:
    """The families of a worker."""
    old_servers = OldServers(services)
    authentication = Authentication(services, old_servers)
    connection = ConnectionCommands(services, authentication.begin)
    server: list[Family] = [
        ClientCommands(),
        ClientList(services),
        ServerCommands(),
        ConfigurationCommands(services),
        Information(services),
        MeasuredCommands(services),
        DebugCommand(services),
    ]
    moves = follow(services)
    keyspace = KeyspaceCommands(services, moves)
    flushing = FlushCommands(services, moves)
    scanning = Scanning(services, moves)
    cluster = ClusterCommands(services, scanning.scan)
    scripts = ScriptCommands(services)
    functions = FunctionCommands(services)
    pubsub = PubSubCommands(services, old_servers)
    blocking = BlockingCommands(services)
    learned = LearnedCommands(services)
    crossing = CrossingCommands(services, authentication.select_refusal)
    sorting = SortCommands(services)
    transactions = TransactionCommands(services, authentication, Preparation(scripts, functions))
    return Families(
        transactions,
        authentication,
        learned,
        (
            *(authentication, connection, *server, keyspace, flushing, scanning, scripts, functions, pubsub),
            *(blocking, crossing, sorting, transactions, learned, cluster, old_servers),
        ),
    )
