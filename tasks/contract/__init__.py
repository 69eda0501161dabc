"""The contract that audits implement: definitions of jobs, configurations, measures, verdicts and audits."""
