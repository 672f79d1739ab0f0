"""Adds the folders of the end-to-end tests to the path: the training tests use their programs and their entry point."""
import pathlib
import sys

for folder in ("e2e", "e2e/training"):
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / folder))


def pytest_configure(config):
    config.addinivalue_line("markers", "nothing_captured: the test is about code that is not compiled")
