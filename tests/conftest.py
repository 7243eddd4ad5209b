"""Fixtures for all tests: real etcds."""

pytest_plugins = ["tests.fixtures.etcd", "tests.fixtures.store"]
