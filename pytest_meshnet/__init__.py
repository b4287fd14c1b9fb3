"""pytest-meshnet: the conformance and acceptance suite for distributed LLM inference."""

__version__ = "0.1.0"
