"""Which call is sent next, and what each outcome means: a plan is driven to its end on an executor."""
