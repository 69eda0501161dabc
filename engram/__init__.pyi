# Written by `make docs`.
from orchestrator import DejaVu as DejaVu
from orchestrator import Density as Density
from orchestrator import EngramError as EngramError
from orchestrator import Forgetting as Forgetting
from orchestrator import Membership as Membership
from orchestrator import Relational as Relational
from orchestrator import SpecError as SpecError
from orchestrator import Text as Text
from orchestrator import TrainingJob as TrainingJob
from orchestrator import UniqueFeature as UniqueFeature
from orchestrator import audit as audit
from orchestrator import audits as audits
from orchestrator import membership as membership
from orchestrator import open as open
from orchestrator import plan as plan
from orchestrator import run as run
from orchestrator import search as search
from orchestrator.python_calls import runs as runs

__all__ = ["EngramError", "SpecError", "audit", "audits", "membership", "plan", "run", "runs", "search"]
