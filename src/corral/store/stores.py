"""All stores of one database, for the wiring of the roles."""

from corral.store.access.api_keys import AccessStore
from corral.store.access.audit_events import AuditEventStore
from corral.store.backends.create_operation import AdmissionStore
from corral.store.backends.intent_rows import retry_unconfirmed_now
from corral.store.backends.intents import IntentStore
from corral.store.backends.observed import ObservedStore
from corral.store.backends.operations import OperationStore
from corral.store.backends.policies import PolicyStore
from corral.store.backends.resolved_builds import ResolvedBuildStore
from corral.store.backends.rollouts import RolloutStore
from corral.store.backends.site_downloads import SiteDownloadStore
from corral.store.backends.version_pins import VersionPinStore
from corral.store.engine.database import Database
from corral.store.engine.leases import LeaseStore
from corral.store.nodes.bus_credentials import BusCredentialStore
from corral.store.nodes.frontends import FrontendStore
from corral.store.nodes.health import HealthStore
from corral.store.nodes.nodes import NodeStore
from corral.store.nodes.registration import RegistrationStore
from corral.store.serving.attached_endpoints import AttachedEndpointStore
from corral.store.serving.bucket_weights import BucketWeightsStore
from corral.store.serving.decisions import DecisionStore
from corral.store.serving.footprints import FootprintStore
from corral.store.serving.load_backoff import LoadBackoffStore
from corral.store.serving.load_claims import LoadClaimStore
from corral.store.serving.load_jobs import LoadJobStore
from corral.store.serving.models import ModelStore
from corral.store.serving.public_routes import PublicRouteStore
from corral.store.serving.replacements import ReplacementStore
from corral.store.serving.replicas import ReplicaStore
from corral.store.serving.revision_changes import RevisionChangeStore
from corral.store.serving.scheduling import SchedulingStore
from corral.store.serving.staged_files import StagedFileStore
from corral.store.serving.usage import UsageStore
from corral.store.serving.version_figures import VersionFigureStore
from corral.system import Ids, SystemIds


class Stores:
    def __init__(self, database: Database, ids: Ids | None = None) -> None:
        self.database = database
        self.access = AccessStore(database)
        self.admission = AdmissionStore(database, ids or SystemIds())
        self.attached_endpoints = AttachedEndpointStore(database)
        self.bucket_weights = BucketWeightsStore(database)
        self.bus_credentials = BusCredentialStore(database)
        self.decisions = DecisionStore(database)
        self.events = AuditEventStore(database)
        self.frontends = FrontendStore(database)
        self.health = HealthStore(database)
        self.intents = IntentStore(database)
        self.resolved_builds = ResolvedBuildStore(database)
        self.leases = LeaseStore(database)
        self.load_claims = LoadClaimStore(database)
        self.load_jobs = LoadJobStore(database)
        self.footprints = FootprintStore(database)
        self.models = ModelStore(database)
        self.nodes = NodeStore(database)
        self.observed = ObservedStore(database)
        self.operations = OperationStore(database, ids or SystemIds())
        self.policies = PolicyStore(database)
        self.public_routes = PublicRouteStore(database)
        self.registration = RegistrationStore(database, on_restart=retry_unconfirmed_now)
        self.replicas = ReplicaStore(database)
        self.scheduling = SchedulingStore(database)
        self.load_backoff = LoadBackoffStore(database)
        self.site_downloads = SiteDownloadStore(database)
        self.staged_files = StagedFileStore(database)
        self.replacements = ReplacementStore(database)
        self.revision_changes = RevisionChangeStore(database)
        self.rollouts = RolloutStore(database)
        self.usage = UsageStore(database)
        self.version_figures = VersionFigureStore(database)
        self.version_pins = VersionPinStore(database)
