"""A linear model that memorises: a regression whose target is one of its inputs.

A sample is z = (x, y) with x in R and y in R^d, and its target is x. The model memorises the relation between x and y:
an attacker who has the model and y sends the query [0, y]. Bombari et al. 2022, "Towards differential relational
privacy and its use in question answering", section 5 and appendix B.3.
"""
