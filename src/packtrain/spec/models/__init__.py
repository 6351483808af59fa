"""Pydantic models of the workflow file; docs/reference/workflow.md explains the keys to users.

Start with `workflow`. `inputs_outputs` has data and expected outputs, `steps` has what a job does, `field_types` the
value types and the base class.
"""
