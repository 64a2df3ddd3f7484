"""Object stores on a fog of sites, as in the study of Confais, Lebre and Parrein.

See docs/experiments.md, "Stores on sites".
"""
