"""Whether, when and where a job runs. Knows no audit by name."""
