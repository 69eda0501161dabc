"""The contract of audits: definitions of a job, a config, a measure, an answer and an audit."""
