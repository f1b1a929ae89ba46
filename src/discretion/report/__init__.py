"""The page a person reads: what was released, what it protects and from whom, what it cost, how to check it."""

from discretion.report.released import audit_page, report, report_folder, write_folder_report, write_report
from discretion.report.scene import Layer, Line, Scene, View

__all__ = [
    "Layer",
    "Line",
    "Scene",
    "View",
    "audit_page",
    "report",
    "report_folder",
    "write_folder_report",
    "write_report",
]
