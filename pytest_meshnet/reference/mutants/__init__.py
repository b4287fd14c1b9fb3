"""The zoo of wrong workers, by group of the ledger. Importing a module fills the catalogue.

Each mutant is the reference with exactly one behaviour broken, in a few lines, with a docstring
that says which. A test that no mutant can fail is a decoration.
"""
