"""Scripts of legal and illegal steps, played against a plain model of the session semantics."""
