"""Planners: which slots should move where, by a policy. Pure functions, deterministic.

To add a policy, write a module with a function of the type :data:`Planner`, and name it in
:data:`topom.balance.planners.policies.POLICIES`. :mod:`topom.balance.rebalancing` knows which policies need sizes or
load of slots, and refuses to plan by them if these are not known.
"""

from topom.balance.planners.document import InvalidPlanInput, plan_document
from topom.balance.planners.forecast import Forecast, forecast
from topom.balance.planners.policies import POLICIES, NoGroup, Planner, UnknownPolicy, plan
from topom.balance.planners.request import DEFAULT_TOLERANCE, InvalidPlanRequest, Plan, PlanRequest

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
