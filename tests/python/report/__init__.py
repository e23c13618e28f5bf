"""Tests of the report, of event files and of callbacks; report_samples.py makes their runs."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
