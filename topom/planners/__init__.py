"""Planners: which slots should move where, by the name of a policy. Pure functions, deterministic.

To add a policy, write a module with a function of :data:`Planner`'s shape and name it in
:data:`topom.planners.policies.POLICIES`.
"""

from topom.planners.document import InvalidPlanInput, plan_document
from topom.planners.forecast import Forecast, forecast
from topom.planners.policies import POLICIES, NoGroup, Planner, UnknownPolicy, plan
from topom.planners.request import DEFAULT_TOLERANCE, InvalidPlanRequest, Plan, PlanRequest

__all__ = [
    "DEFAULT_TOLERANCE",
    "POLICIES",
    "Forecast",
    "InvalidPlanInput",
    "InvalidPlanRequest",
    "NoGroup",
    "Plan",
    "PlanRequest",
    "Planner",
    "UnknownPolicy",
    "forecast",
    "plan",
    "plan_document",
]
