"""Everything the store offers, opened once and handed to who needs a part of it."""

from corral.store.access import AccessStore
from corral.store.admission import AdmissionStore
from corral.store.bucket_weights import BucketWeightsStore
from corral.store.bus_credentials import BusCredentialStore
from corral.store.database import Database
from corral.store.decisions import DecisionStore
from corral.store.events import EventStore
from corral.store.frontends import FrontendStore
from corral.store.health import HealthStore
from corral.store.intents import IntentStore
from corral.store.kept_builds import KeptBuildStore
from corral.store.leases import LeaseStore
from corral.store.load_claims import LoadClaimStore
from corral.store.load_jobs import LoadJobStore
from corral.store.load_memory import LoadMemoryStore
from corral.store.models import ModelStore
from corral.store.nodes import NodeStore
from corral.store.observed import ObservedStore
from corral.store.operations import OperationStore
from corral.store.policies import PolicyStore
from corral.store.registration import RegistrationStore
from corral.store.replicas import ReplicaStore
from corral.store.scheduling import SchedulingStore
from corral.store.setbacks import SetbackStore
from corral.store.staged_files import StagedFileStore
from corral.store.switches import SwitchStore
from corral.store.usage import UsageStore
from corral.store.version_holds import VersionHoldStore
from corral.system import Ids, SystemIds


class Stores:
    def __init__(self, database: Database, ids: Ids | None = None) -> None:
        self.database = database
        self.access = AccessStore(database)
        self.admission = AdmissionStore(database, ids or SystemIds())
        self.bucket_weights = BucketWeightsStore(database)
        self.bus_credentials = BusCredentialStore(database)
        self.decisions = DecisionStore(database)
        self.events = EventStore(database)
        self.frontends = FrontendStore(database)
        self.health = HealthStore(database)
        self.intents = IntentStore(database)
        self.kept_builds = KeptBuildStore(database)
        self.leases = LeaseStore(database)
        self.load_claims = LoadClaimStore(database)
        self.load_jobs = LoadJobStore(database)
        self.load_memory = LoadMemoryStore(database)
        self.models = ModelStore(database)
        self.nodes = NodeStore(database)
        self.observed = ObservedStore(database)
        self.operations = OperationStore(database)
        self.policies = PolicyStore(database)
        self.registration = RegistrationStore(database)
        self.replicas = ReplicaStore(database)
        self.scheduling = SchedulingStore(database)
        self.setbacks = SetbackStore(database)
        self.staged_files = StagedFileStore(database)
        self.switches = SwitchStore(database)
        self.usage = UsageStore(database)
        self.version_holds = VersionHoldStore(database)
