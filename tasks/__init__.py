"""What is computed: tasks, and the audits built from them. Runs in a bare process, without any orchestrator."""
