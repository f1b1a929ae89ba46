"""This library and its claims, measured."""
