"""The contract of audits: what a job, a config, a measure, an answer and an audit are."""
