"""Tasks and the audits built from them: everything that is computed.

Runs in a bare process, without an orchestrator.
"""
