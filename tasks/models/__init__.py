"""Networks from the papers, and users' own networks."""
