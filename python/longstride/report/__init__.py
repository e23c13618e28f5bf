"""longstride report RUN...: one HTML file that shows how a run went, or how several compare. It needs no network."""
from longstride.report.command import main

__all__ = ["main"]
